//! The part of Python's pickle format that files of tensors use. Nothing that a pickle names is run.
//!
//! A pickle is a program for a machine with a stack. Where it asks for a call of a function, the value is
//! the name of the function and what it would be called with.

use std::collections::BTreeMap;

/// No pickle of a file of tensors is longer.
pub(super) const LENGTH_MAX: usize = 8 << 20;

/// A value by its place among the values of its pickle.
pub(super) type ValueId = usize;

/// What a pickle can say.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PickleValue {
    /// Something that no tensor is made of: nothing, a fraction, a long number.
    Other,
    Truth(bool),
    Int(i64),
    Text(String),
    /// A tuple or a list.
    List(Vec<ValueId>),
    /// What a dictionary maps to what.
    Dictionary(Vec<[ValueId; 2]>),
    /// A class or a function: `torch.FloatStorage`.
    Name(String),
    /// What a call would have made.
    Object(Object),
    /// Something outside of the pickle.
    External(ValueId),
}

/// What a call would have made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    /// The class or the function.
    pub(super) maker: ValueId,
    /// What it would be called with.
    pub(super) arguments: ValueId,
    /// What is mapped to what, of a dictionary.
    pub(super) entries: Vec<[ValueId; 2]>,
    /// What was set afterwards.
    pub(super) state: Option<ValueId>,
}

/// A pickle that was read.
#[derive(Debug)]
pub(super) struct Pickle {
    values: Vec<PickleValue>,
    root: ValueId,
    /// Bytes up to its end.
    pub(super) length: usize,
}

impl Pickle {
    /// Reads the pickle at the beginning of these bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut machine = Machine {
            bytes,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: BTreeMap::new(),
        };
        while machine.step()? {
            if machine.at > LENGTH_MAX {
                return Err(format!("its pickle is longer than {} MiB", LENGTH_MAX >> 20));
            }
        }
        let root = machine.pop()?;
        Ok(Self { values: machine.values, root, length: machine.at })
    }

    /// What the pickle is of.
    pub(super) fn root(&self) -> &PickleValue {
        self.value(self.root)
    }

    pub(super) fn value(&self, id: ValueId) -> &PickleValue {
        &self.values[id]
    }

    /// All values.
    pub(super) fn values(&self) -> &[PickleValue] {
        &self.values
    }

    pub(super) fn text(&self, id: ValueId) -> Option<&str> {
        match self.value(id) {
            PickleValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn name(&self, id: ValueId) -> Option<&str> {
        match self.value(id) {
            PickleValue::Name(name) => Some(name),
            _ => None,
        }
    }

    /// A number that counts something.
    pub(super) fn count(&self, id: ValueId) -> Option<u64> {
        match self.value(id) {
            PickleValue::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub(super) fn list(&self, id: ValueId) -> Option<&[ValueId]> {
        match self.value(id) {
            PickleValue::List(items) => Some(items),
            _ => None,
        }
    }

    /// What a dictionary maps to what: a plain one, or one that keeps its order.
    pub(super) fn entries(&self, of: &PickleValue) -> Option<Vec<[ValueId; 2]>> {
        match of {
            PickleValue::Dictionary(entries) => Some(entries.clone()),
            PickleValue::Object(object)
                if self.name(object.maker)? == "collections.OrderedDict" =>
            {
                // Python 2 lists the pairs among the arguments.
                let listed = self.list(object.arguments)?.first().and_then(|&id| self.list(id));
                let pair = |&id: &ValueId| <[ValueId; 2]>::try_from(self.list(id)?).ok();
                let listed = listed.unwrap_or_default().iter().filter_map(pair);
                Some(listed.chain(object.entries.iter().copied()).collect())
            }
            _ => None,
        }
    }
}

/// The machine that reads a pickle.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<PickleValue>,
    stack: Vec<ValueId>,
    /// How high the stack was at each mark.
    marks: Vec<usize>,
    /// Values that are used again.
    memo: BTreeMap<u32, ValueId>,
}

impl<'a> Machine<'a> {
    /// Does what the next byte says; false at the end.
    fn step(&mut self) -> Result<bool, String> {
        let [operation] = self.array()?;
        match operation {
            b'.' => return Ok(false),
            // The version of the format.
            0x80 => drop(self.array::<1>()?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(PickleValue::Other),
            0x88 | 0x89 => self.push(PickleValue::Truth(operation == 0x88)),
            b'G' => {
                self.take(8)?;
                self.push(PickleValue::Other);
            }
            0x8a => {
                let [length] = self.array()?;
                self.take(length.into())?;
                self.push(PickleValue::Other);
            }
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(PickleValue::Int(value.into()));
            }
            b'K' => {
                let [value] = self.array()?;
                self.push(PickleValue::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(PickleValue::Int(value.into()));
            }
            b'X' | b'T' => {
                let length = u32::from_le_bytes(self.array()?);
                self.text(length as usize)?;
            }
            b'U' => {
                let [length] = self.array()?;
                self.text(length.into())?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(PickleValue::Name(format!("{module}.{name}")));
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(PickleValue::External(id));
            }
            b'R' | 0x81 => {
                let (arguments, maker) = (self.pop()?, self.pop()?);
                let object = Object { maker, arguments, entries: Vec::new(), state: None };
                self.push(PickleValue::Object(object));
            }
            b'b' => {
                let state = self.pop()?;
                if let PickleValue::Object(object) = self.top()? {
                    object.state = Some(state);
                }
            }
            b')' | b']' => self.push(PickleValue::List(Vec::new())),
            0x85..=0x87 => {
                let first = self.stack.len().checked_sub(usize::from(operation - 0x84));
                let items = self.stack.split_off(first.ok_or_else(empty)?);
                self.push(PickleValue::List(items));
            }
            b't' => {
                let items = self.since_mark()?;
                self.push(PickleValue::List(items));
            }
            b'}' => self.push(PickleValue::Dictionary(Vec::new())),
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(&items)?;
            }
            b'q' => {
                let [key] = self.array()?;
                self.keep(key.into())?;
            }
            b'r' => {
                let key = u32::from_le_bytes(self.array()?);
                self.keep(key)?;
            }
            b'h' => {
                let [key] = self.array()?;
                self.fetch(key.into())?;
            }
            b'j' => {
                let key = u32::from_le_bytes(self.array()?);
                self.fetch(key)?;
            }
            other => {
                return Err(format!(
                    "its pickle has the operation 0x{other:02x} at byte {}, which no file of tensors \
                     needs",
                    self.at - 1
                ));
            }
        }
        Ok(true)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or("its pickle breaks off")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().ok().ok_or_else(empty)
    }

    /// Up to the end of the line.
    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or("its pickle breaks off")?;
        let line = self.take(length + 1)?;
        Ok(String::from_utf8_lossy(&line[..length]).into_owned())
    }

    fn text(&mut self, length: usize) -> Result<(), String> {
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.push(PickleValue::Text(text));
        Ok(())
    }

    fn push(&mut self, value: PickleValue) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<ValueId, String> {
        self.stack.pop().ok_or_else(empty)
    }

    fn top(&mut self) -> Result<&mut PickleValue, String> {
        let id = *self.stack.last().ok_or_else(empty)?;
        Ok(&mut self.values[id])
    }

    /// What was put on the stack since the last mark.
    fn since_mark(&mut self) -> Result<Vec<ValueId>, String> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or_else(empty)?))
    }

    fn append(&mut self, items: &[ValueId]) -> Result<(), String> {
        if let PickleValue::List(list) = self.top()? {
            list.extend(items);
        }
        Ok(())
    }

    /// Maps keys to values, which follow one another.
    fn set(&mut self, items: &[ValueId]) -> Result<(), String> {
        let pairs = items.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        if let PickleValue::Dictionary(entries) | PickleValue::Object(Object { entries, .. }) =
            self.top()?
        {
            entries.extend(pairs);
        }
        Ok(())
    }

    fn keep(&mut self, key: u32) -> Result<(), String> {
        let id = *self.stack.last().ok_or_else(empty)?;
        self.memo.insert(key, id);
        Ok(())
    }

    fn fetch(&mut self, key: u32) -> Result<(), String> {
        let id = self.memo.get(&key).ok_or("its pickle uses a value that it does not have")?;
        self.stack.push(*id);
        Ok(())
    }
}

fn empty() -> String {
    "its pickle takes a value where there is none".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_in_order_has_its_entries_however_python_wrote_it() {
        let of_python_3 =
            b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02K\x07u.";
        let of_python_2 = b"\x80\x02ccollections\nOrderedDict\n](](U\x01aK\x07ee\x85R.";
        for bytes in [&of_python_3[..], of_python_2] {
            let pickle = Pickle::read(bytes).unwrap();
            let entries = pickle.entries(pickle.root()).unwrap();
            assert_eq!(entries.len(), 1, "{pickle:?}");
            assert_eq!(pickle.text(entries[0][0]), Some("a"));
            assert_eq!(pickle.count(entries[0][1]), Some(7));
            assert_eq!(pickle.length, bytes.len());
        }
    }

    #[test]
    fn what_is_no_pickle_of_tensors_is_refused_without_a_panic() {
        // `os.system("x")` is read, and nothing more.
        let pickle = Pickle::read(b"\x80\x02cos\nsystem\nU\x01x\x85R.").unwrap();
        assert!(matches!(pickle.root(), PickleValue::Object(_)));
        let refused: [&[u8]; 9] =
            [b"", b".", b"\x80", b"R.", b"\x87.", b"u.", b"h\x05.", b"X\xff\xff\xff\xff", b"cos"];
        for bytes in refused {
            assert!(Pickle::read(bytes).unwrap_err().contains("pickle"), "{bytes:?}");
        }
        let error = Pickle::read(b"\x80\x02i").unwrap_err();
        assert!(error.contains("0x69") && error.contains("byte 2"), "{error}");
        // A list that holds itself.
        Pickle::read(b"]q\x00h\x00a.").unwrap();
    }
}
