//! What a checkpoint holds of the photographs' colours: whole tensors, where the run learned them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use safetensors::tensor::{Dtype, Metadata};

use crate::backend::{AppearanceTables, Compensation};

/// Of values and moments, and of the number of steps behind them.
const TENSORS: [&str; 3] =
    ["appearance.values", "appearance.first_moments", "appearance.second_moments"];
const STEPS: &str = "appearance.steps";

/// A tensor as the file holds it.
pub(super) struct Tensor<'a> {
    pub(super) name: &'static str,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: &'a [u8],
}

/// The tables' tensors, in the order of the file.
pub(super) fn tensors(tables: &AppearanceTables) -> Vec<Tensor<'_>> {
    let views = tables.steps.len();
    let parts = [&tables.values, &tables.first_moments, &tables.second_moments];
    let mut tensors: Vec<Tensor<'_>> = TENSORS
        .into_iter()
        .zip(parts)
        .map(|(name, values)| Tensor {
            name,
            dtype: Dtype::F32,
            shape: vec![views, tables.kind.width()],
            bytes: bytemuck::cast_slice(values),
        })
        .collect();
    let bytes = bytemuck::cast_slice(&tables.steps);
    tensors.push(Tensor { name: STEPS, dtype: Dtype::U32, shape: vec![views], bytes });
    tensors
}

/// Where a file holds tables.
#[derive(Debug)]
pub(super) struct StoredTables {
    kind: Compensation,
    views: usize,
    /// Where values and moments begin.
    places: [u64; 3],
    /// Where the numbers of steps begin.
    steps: u64,
}

impl StoredTables {
    /// Finds those of so many views; nothing where the file has none.
    pub(super) fn find(
        header: &Metadata,
        data_start: u64,
        views: usize,
    ) -> Result<Option<Self>, String> {
        let Some(info) = header.info(TENSORS[0]) else { return Ok(None) };
        let kinds = [Compensation::Exposure, Compensation::BilateralGrid];
        let width = info.shape.last().copied();
        let Some(kind) = kinds.into_iter().find(|kind| Some(kind.width()) == width) else {
            return Err(format!("`{}` is {:?}", TENSORS[0], info.shape));
        };
        let place = |name: &str, dtype: Dtype, shape: &[usize]| {
            let info = header.info(name).ok_or_else(|| format!("it has no tensor `{name}`"))?;
            if info.dtype != dtype || info.shape != shape {
                return Err(format!(
                    "`{name}` is {:?} {:?} instead of {dtype:?} {shape:?}",
                    info.dtype, info.shape
                ));
            }
            Ok(data_start + info.data_offsets.0 as u64)
        };
        let [values, first, second] =
            TENSORS.map(|name| place(name, Dtype::F32, &[views, kind.width()]));
        let places = [values?, first?, second?];
        let steps = place(STEPS, Dtype::U32, &[views])?;
        Ok(Some(Self { kind, views, places, steps }))
    }

    /// Reads them; a value that is no number is damage.
    pub(super) fn read(&self, file: &mut File) -> io::Result<AppearanceTables> {
        let mut tables = AppearanceTables::identity(self.kind, self.views);
        let parts = [&mut tables.values, &mut tables.first_moments, &mut tables.second_moments];
        for ((values, place), name) in parts.into_iter().zip(self.places).zip(TENSORS) {
            file.seek(SeekFrom::Start(place))?;
            file.read_exact(bytemuck::cast_slice_mut(values))?;
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let problem = format!("`{name}` is not finite at element {at}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
        }
        file.seek(SeekFrom::Start(self.steps))?;
        file.read_exact(bytemuck::cast_slice_mut(&mut tables.steps))?;
        Ok(tables)
    }
}
