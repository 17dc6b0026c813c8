//! The events file with samples of all kinds, a full disk and a wrong picture.

use std::sync::Arc;

use super::*;

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_an_error_at_the_start() {
    let path = Path::new("/dev/full");
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let Err(error) = TensorBoard::to_writer(path, file) else { panic!("written") };
    assert!(error.to_string().starts_with("/dev/full: cannot be written"), "{error}");
}

/// Takes so many bytes and is full then.
struct Disk(usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_fills_up_is_an_error_at_the_next_flush() {
    let path = Path::new("model/events");
    let mut sink = TensorBoard::to_writer(path, Disk(100)).unwrap();
    sink.on(&Event::OpacityReset { iteration: 3000 }).unwrap();
    let report = MemoryReport {
        iteration: 100,
        tensors: crate::train::event::Tensors::default(),
        vram: None,
        offloaded: None,
        host_resident: None,
        host_total: None,
        host_limit: None,
        host_creep: None,
        peaks: PhasePeaks::default(),
    };
    let error = sink.on(&Event::Memory(report)).unwrap_err();
    assert!(error.to_string().contains("model/events"), "{error}");
}

#[test]
fn a_picture_of_another_size_than_it_says_is_an_error() {
    let mut sink = TensorBoard::to_writer(Path::new("events"), Vec::new()).unwrap();
    let wrong = Arc::new(Picture { width: 2, height: 2, rgb: vec![0; 11] });
    let pictures = Pictures {
        iteration: 1,
        split: Split::Test,
        name: "a.jpg".to_owned(),
        render: wrong.clone(),
        ground_truth: wrong.clone(),
        error: wrong.clone(),
        density: wrong,
        depth: None,
        normals: None,
    };
    let error = sink.on(&Event::Pictures(pictures)).unwrap_err();
    assert!(error.to_string().contains("2x2 px has 11 bytes"), "{error}");
}
