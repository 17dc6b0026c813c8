//! Files of tensors as `PyTorch` writes them, byte by byte.

use super::lpips::Tensor;

/// A pickle that is being written.
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Self {
        Self(vec![0x80, 2])
    }

    fn raw(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.extend(bytes.as_ref());
        self
    }

    fn name(self, module: &str, name: &str) -> Self {
        self.raw(format!("c{module}\n{name}\n"))
    }

    fn text(self, text: &str) -> Self {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        self.raw("X").raw(length).raw(text)
    }

    fn number(self, value: usize) -> Self {
        match (u8::try_from(value), u16::try_from(value)) {
            (Ok(value), _) => self.raw([b'K', value]),
            (_, Ok(value)) => self.raw("M").raw(value.to_le_bytes()),
            _ => self.raw("J").raw(i32::try_from(value).unwrap().to_le_bytes()),
        }
    }

    fn tuple(self, values: &[usize]) -> Self {
        let numbers = values.iter().fold(self.raw("("), |pickle, &value| pickle.number(value));
        numbers.raw("t")
    }

    /// `torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`, or what
    /// came before it.
    fn tensor(self, tensor: &Tensor, key: &str, version: Version) -> Self {
        let length = tensor.bytes.len() / 4;
        let mut strides = vec![1; tensor.shape.len()];
        for axis in (1..strides.len()).rev() {
            strides[axis - 1] = strides[axis] * tensor.shape[axis];
        }
        let function =
            if version == Version::Zip { "_rebuild_tensor_v2" } else { "_rebuild_tensor" };
        let begun = match version {
            Version::Parameters => {
                self.name("torch.nn.parameter", "Parameter").name("torch._utils", function)
            }
            _ => self.name("torch._utils", function),
        };
        let storage = begun.raw("((").text("storage").name("torch", "FloatStorage").text(key);
        let storage = storage.text("cpu").number(length);
        let storage = if version == Version::Zip { storage } else { storage.raw("N") };
        let view = storage.raw("tQ").number(0).tuple(&tensor.shape).tuple(&strides);
        match version {
            Version::Zip => view.raw(b"\x89").name("collections", "OrderedDict").raw(")RtR"),
            Version::Stream => view.raw("tR"),
            // With the state that a wrapper of the first versions got afterwards.
            Version::Parameters => view.raw(b"tR\x88\x86R\x88\x89N\x87b"),
        }
    }

    /// An `OrderedDict` of named tensors, whose storages are called 0, 1 and so on.
    fn state_dict(tensors: &[Tensor], version: Version) -> Vec<u8> {
        let begun = Self::new().name("collections", "OrderedDict").raw("q\x00)Rq\x01(");
        let entries = tensors.iter().enumerate().fold(begun, |pickle, (at, tensor)| {
            pickle.text(&tensor.name).tensor(tensor, &at.to_string(), version)
        });
        entries.raw("u.").0
    }
}

/// How `torch.save` wrote at what time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Since 1.6.
    Zip,
    /// Before.
    Stream,
    /// In the beginning, when networks stored their tensors in wrappers.
    Parameters,
}

/// The file of these tensors.
pub fn file(tensors: &[Tensor], version: Version) -> Vec<u8> {
    let described = Pickle::state_dict(tensors, version);
    if version == Version::Zip {
        return zip(tensors, &described);
    }
    let mut file = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    file.extend(Pickle::new().number(1001).raw(".").0);
    let machine = Pickle::new().raw("}(").text("protocol_version").number(1001);
    file.extend(machine.text("little_endian").raw(b"\x88u.").0);
    file.extend(described);
    let keys = (0..tensors.len()).fold(Pickle::new().raw("]("), |it, at| it.text(&at.to_string()));
    file.extend(keys.raw("e.").0);
    for tensor in tensors {
        file.extend((tensor.bytes.len() as u64 / 4).to_le_bytes());
        file.extend(&tensor.bytes);
    }
    file
}

/// A zip of `archive/data.pkl` and `archive/data/N`, none of them compressed.
fn zip(tensors: &[Tensor], described: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut archive = rawzip::ZipArchiveWriter::new(&mut file);
    let mut add = |name: &str, content: &[u8]| {
        let new = archive.new_file(name).compression_method(rawzip::CompressionMethod::STORE);
        let (mut entry, config) = new.start().unwrap();
        let mut writer = config.wrap(&mut entry);
        std::io::Write::write_all(&mut writer, content).unwrap();
        let (_, descriptor) = writer.finish().unwrap();
        entry.finish(descriptor).unwrap();
    };
    add("archive/data.pkl", described);
    add("archive/byteorder", b"little");
    for (at, tensor) in tensors.iter().enumerate() {
        add(&format!("archive/data/{at}"), &tensor.bytes);
    }
    add("archive/version", b"3\n");
    archive.finish().unwrap();
    file
}
