//! Access to a device for a writer with several threads: search for palettes, and fit of colours.
//!
//! A device belongs to one thread. The writer runs in another thread, and its threads send requests through a channel
//! and wait for the answers. The processor does the work that the device cannot do.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rayon::ThreadPoolBuilder;
use splat_formats::{
    CellLists, ColorFit, HeldRows, HostSearch, NearRow, RowSearch, SharedRows, Splats,
};

use crate::backend::{DeviceError, Palettes};

/// Runs `work`, which may use the device to search for palettes, and to fit colours by `fit`.
pub fn with_device<B: Palettes, T: Send>(
    device: &mut B,
    mut fit: impl FnMut(&mut B, Splats, &SharedRows) -> Option<Splats>,
    work: impl FnOnce(&DeviceTools) -> T + Send,
) -> T {
    let (requests, received) = channel();
    thread::scope(|scope| {
        // The writer's threads wait for answers, and the device may need the threads of the global pool.
        let pool = ThreadPoolBuilder::new().build().ok();
        let writer = scope.spawn(move || {
            let tools = DeviceTools { requests };
            match &pool {
                Some(pool) => pool.install(|| work(&tools)),
                None => work(&tools),
            }
        });
        serve(device, &mut fit, received);
        writer.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Request to the device with the channel of its answer; `None` if the device fails.
enum Request {
    Hold { rows: Vec<f32>, width: usize, answer: Sender<Option<u64>> },
    Entries { rows: u64, search: EntrySearch, answer: Sender<Option<Vec<NearRow>>> },
    Cells { rows: u64, centers: Vec<f32>, count: usize, answer: Sender<Option<Vec<u32>>> },
    Drop { rows: u64 },
    Fit { stored: Splats, alike: SharedRows, answer: Sender<Option<Splats>> },
}

struct EntrySearch {
    centers: Vec<f32>,
    starts: Vec<u32>,
    of_rows: Vec<u32>,
    per_row: usize,
    order: Vec<u32>,
}

/// Answers requests until all senders are gone. After a panic the requests are dropped, so that no thread waits
/// forever.
fn serve<B: Palettes>(
    device: &mut B,
    fit: &mut dyn FnMut(&mut B, Splats, &SharedRows) -> Option<Splats>,
    received: Receiver<Request>,
) {
    let mut held: BTreeMap<u64, B::PaletteRows> = BTreeMap::new();
    let mut next = 0;
    let failures = Failures::default();
    for request in received {
        // A closed channel of an answer means that the requester has ended; its error is reported elsewhere.
        match request {
            Request::Hold { rows, width, answer } => {
                let number = failures.noted(device.hold_rows(&rows, width)).map(|rows| {
                    next += 1;
                    held.insert(next, rows);
                    next
                });
                answer.send(number).ok();
            }
            Request::Entries { rows, search, answer } => {
                let EntrySearch { centers, starts, of_rows, per_row, order } = &search;
                let cells = CellLists { starts, of_rows, per_row: *per_row, order };
                let found = held
                    .get_mut(&rows)
                    .and_then(|rows| failures.noted(device.near_entries(rows, centers, &cells)));
                answer.send(found).ok();
            }
            Request::Cells { rows, centers, count, answer } => {
                let found = held
                    .get_mut(&rows)
                    .and_then(|rows| failures.noted(device.near_cells(rows, &centers, count)));
                answer.send(found).ok();
            }
            Request::Drop { rows } => drop(held.remove(&rows)),
            Request::Fit { stored, alike, answer } => {
                answer.send(fit(device, stored, &alike)).ok();
            }
        }
    }
}

/// Warns once that the processor does the work.
#[derive(Default)]
struct Failures {
    has_warned: Cell<bool>,
}

impl Failures {
    fn noted<T>(&self, done: Result<T, DeviceError>) -> Option<T> {
        done.map_err(|error| {
            if !self.has_warned.replace(true) {
                tracing::warn!(
                    "{error}. The palette of harmonics is searched for on the processor, which takes longer"
                );
            }
        })
        .ok()
    }
}

/// Client of the device.
pub struct DeviceTools {
    requests: Sender<Request>,
}

impl DeviceTools {
    /// Sends a request and waits for the answer; `None` if the device fails or has ended.
    fn request<T>(&self, request: impl FnOnce(Sender<Option<T>>) -> Request) -> Option<T> {
        let (answer, answered) = channel();
        self.requests.send(request(answer)).ok()?;
        answered.recv().ok().flatten()
    }
}

impl ColorFit for DeviceTools {
    fn fit(&self, stored: Splats, alike: &SharedRows) -> Option<Splats> {
        self.request(|answer| Request::Fit { stored, alike: alike.clone(), answer })
    }
}

impl RowSearch for DeviceTools {
    fn hold<'a>(&'a self, rows: &'a [f32], width: usize) -> Box<dyn HeldRows + 'a> {
        let number = self.request(|answer| Request::Hold { rows: rows.to_vec(), width, answer });
        Box::new(DeviceRows { search: self, rows, width, number })
    }
}

/// Rows on the device, with a copy on the host for work that the device cannot do.
struct DeviceRows<'a> {
    search: &'a DeviceTools,
    rows: &'a [f32],
    width: usize,
    number: Option<u64>,
}

impl HeldRows for DeviceRows<'_> {
    fn nearest(&self, centers: &[f32], cells: &CellLists<'_>) -> Vec<NearRow> {
        let found = self.number.and_then(|rows| {
            let search = EntrySearch {
                centers: centers.to_vec(),
                starts: cells.starts.to_vec(),
                of_rows: cells.of_rows.to_vec(),
                per_row: cells.per_row,
                order: cells.order.to_vec(),
            };
            self.search.request(|answer| Request::Entries { rows, search, answer })
        });
        found.unwrap_or_else(|| HostSearch.hold(self.rows, self.width).nearest(centers, cells))
    }

    fn near_cells(&self, centers: &[f32], count: usize) -> Vec<u32> {
        let found = self.number.and_then(|rows| {
            let centers = centers.to_vec();
            self.search.request(|answer| Request::Cells { rows, centers, count, answer })
        });
        found.unwrap_or_else(|| HostSearch.hold(self.rows, self.width).near_cells(centers, count))
    }
}

impl Drop for DeviceRows<'_> {
    fn drop(&mut self) {
        if let Some(rows) = self.number {
            self.search.requests.send(Request::Drop { rows }).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use splat_formats::{
        SogOptions, SogTools, SplatColumns, StreamedOptions, read_sog, write_sog, write_streamed,
    };

    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::backend::{Device, DeviceInfo, Photo};
    use crate::memory::Bytes;

    /// A device that holds rows, but finds nothing.
    struct Failing;

    impl Device for Failing {
        type Target = ();

        fn info(&self) -> DeviceInfo {
            DeviceInfo { name: "failing".to_owned(), uuid: None }
        }

        fn upload_target(&mut self, _: Photo<'_>) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    struct NoRows;

    impl crate::backend::Held for NoRows {
        fn bytes(&self) -> Bytes {
            Bytes(0)
        }
    }

    fn unsupported<T>() -> Result<T, DeviceError> {
        Err(DeviceError::Unsupported { primitives: "rows", what: "search" })
    }

    impl Palettes for Failing {
        type PaletteRows = NoRows;

        fn hold_rows(&mut self, _: &[f32], _: usize) -> Result<NoRows, DeviceError> {
            Ok(NoRows)
        }

        fn near_entries(
            &mut self,
            _: &mut NoRows,
            _: &[f32],
            _: &CellLists<'_>,
        ) -> Result<Vec<NearRow>, DeviceError> {
            unsupported()
        }

        fn near_cells(
            &mut self,
            _: &mut NoRows,
            _: &[f32],
            _: usize,
        ) -> Result<Vec<u32>, DeviceError> {
            unsupported()
        }
    }

    /// Returns more rows than a palette has entries.
    fn splats() -> Splats {
        let count = 3000_u16;
        let value = |i: usize| (f64::from(u32::try_from(i).unwrap()) * 0.37).sin();
        let narrow = |x: f64| crate::math::Real::to_f32(x);
        let columns = SplatColumns {
            sh_degree: 1,
            means: (0..count).map(|i| [f32::from(i), 0.0, 1.0]).collect(),
            log_scales: vec![[-1.0; 3]; count.into()],
            rotations: vec![[1.0, 0.0, 0.0, 0.0]; count.into()],
            opacity_logits: vec![1.0; count.into()],
            sh_dc: vec![[0.0; 3]; count.into()],
            sh_rest: (0..3 * usize::from(count)).map(|i| [narrow(value(i)); 3]).collect(),
            ..SplatColumns::default()
        };
        Splats::from_columns(columns).unwrap().splats
    }

    fn no_fit<B>(_: &mut B, _: Splats, _: &SharedRows) -> Option<Splats> {
        None
    }

    fn written(tools: &SogTools<'_>) -> BTreeMap<String, Vec<u8>> {
        let mut parts = BTreeMap::new();
        write_sog(&splats(), &SogOptions::default(), tools, &mut parts).unwrap();
        parts
    }

    fn by_search(search: &DeviceTools) -> SogTools<'_> {
        SogTools { search, ..SogTools::default() }
    }

    #[test]
    fn a_device_even_if_it_fails_writes_the_bytes_of_the_processor() {
        let here = written(&SogTools { search: &HostSearch, ..SogTools::default() });
        let write = |tools: &DeviceTools| written(&by_search(tools));
        assert!(with_device(&mut Cpu::<f32>::new(), no_fit, write) == here);
        assert!(with_device(&mut Failing, no_fit, write) == here);
    }

    #[test]
    fn concurrent_files_share_a_device() {
        let written = |tools: &SogTools<'_>| {
            let mut parts = BTreeMap::new();
            let options = StreamedOptions { chunk_splats: 1100, ..StreamedOptions::default() };
            write_streamed(&splats(), &options, tools, &mut parts).unwrap();
            parts
        };
        let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let there = pool.install(|| {
            with_device(&mut Cpu::<f32>::new(), no_fit, |tools| written(&by_search(tools)))
        });
        assert!(there == written(&SogTools::default()));
    }

    #[test]
    fn fitted_colours_are_in_the_file() {
        let read = |tools: &SogTools<'_>| read_sog(&mut written(tools)).unwrap().splats;
        let brighter = |_: &mut Cpu<f32>, stored: Splats, _: &SharedRows| {
            let mut columns = stored.into_columns();
            columns.sh_dc.iter_mut().flatten().for_each(|value| *value += 1.0);
            columns.means.iter_mut().flatten().for_each(|value| *value += 9.0);
            Some(Splats::from_columns(columns).unwrap().splats)
        };
        let there = with_device(&mut Cpu::<f32>::new(), brighter, |tools| {
            read(&SogTools { fit: Some(tools), ..by_search(tools) })
        });
        let here = read(&SogTools { search: &HostSearch, fit: None, seen: None });
        // Positions, scales and rotations do not change.
        assert_eq!(there.columns().means, here.columns().means);
        assert_eq!(there.columns().log_scales, here.columns().log_scales);
        let pairs = there.columns().sh_dc.iter().zip(&here.columns().sh_dc);
        assert!(pairs.flat_map(|(a, b)| [a[0] - b[0], a[2] - b[2]]).all(|it| it > 0.9));
    }

    #[test]
    #[should_panic(expected = "the device")]
    fn a_panic_of_the_device_ends_all_requests() {
        let fit = |_: &mut Cpu<f32>, _: Splats, _: &SharedRows| panic!("the device");
        with_device(&mut Cpu::<f32>::new(), fit, |tools| {
            let tools = SogTools { fit: Some(tools), ..by_search(tools) };
            write_sog(&splats(), &SogOptions::default(), &tools, &mut BTreeMap::new()).is_err()
        });
    }

    #[test]
    #[should_panic(expected = "the writer")]
    fn a_panic_of_the_writer_is_passed_on() {
        with_device(&mut Failing, no_fit, |_| panic!("the writer"));
    }
}
