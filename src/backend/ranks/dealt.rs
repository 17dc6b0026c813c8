//! Rows of a model on their way from rank 0 to who has them, and back.

use std::collections::VecDeque;
use std::ops::Range;

use super::line::RankLine;
use super::numbering::{Numbering, RankRows};
use super::packed_rows::PackedRows;
use crate::backend::{DeviceError, Rows, Snapshot, chunks};
use crate::memory::plan::OptionalColumns;
use crate::model::{Gaussians, Primitive as _};

/// The rows of this rank, which come in parts.
pub(in crate::backend) struct Arriving<F> {
    len: usize,
    sh_degree: u32,
    optional: OptionalColumns,
    /// The next part; nothing after the last.
    next_part: F,
    /// What has come and was not read.
    waiting: Option<Snapshot<Gaussians>>,
}

impl<E: From<DeviceError>, F: FnMut() -> Result<Option<Snapshot<Gaussians>>, E>> Arriving<F> {
    /// Takes part in what is still dealt to other ranks, once all own rows were read.
    pub(in crate::backend) fn end(mut self) -> Result<(), E> {
        while (self.next_part)()?.is_some() {}
        Ok(())
    }
}

impl<E: From<DeviceError>, F: FnMut() -> Result<Option<Snapshot<Gaussians>>, E>> Rows<Gaussians>
    for Arriving<F>
{
    type Error = E;

    fn len(&self) -> usize {
        self.len
    }

    fn shape(&mut self) -> Result<Gaussians, E> {
        Ok(Gaussians::empty(self.sh_degree))
    }

    fn optional(&self) -> OptionalColumns {
        self.optional
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<Gaussians>, E> {
        loop {
            if let Some(mut waiting) = self.waiting.take_if(|waiting| waiting.len() >= rows.len()) {
                if waiting.len() == rows.len() {
                    return Ok(waiting);
                }
                let rest = waiting.read(rows.len()..waiting.len())?;
                self.waiting = (!rest.is_empty()).then_some(rest);
                return Ok(waiting.read(0..rows.len())?);
            }
            let Some(part) = (self.next_part)()? else {
                let message = "it deals fewer rows out than this rank is to have".to_owned();
                return Err(DeviceError::OfRank { rank: 0, message }.into());
            };
            match &mut self.waiting {
                Some(waiting) => waiting.append(part),
                None => self.waiting = Some(part),
            }
        }
    }
}

/// The rows of rank 0 of those that it deals out by a numbering, of which it holds a chunk at a time.
pub(in crate::backend) fn deal<'a, S: Rows<Gaussians>>(
    line: &'a RankLine,
    numbering: &'a Numbering,
    source: &'a mut S,
    sh_degree: u32,
) -> Arriving<impl FnMut() -> Result<Option<Snapshot<Gaussians>>, S::Error> + 'a>
where
    S::Error: From<DeviceError>,
{
    let (len, optional) = (numbering.counts()[0], source.optional());
    let mut coming = chunks(source.len());
    let next_part = move || {
        let Some(numbers) = coming.next() else { return Ok(None) };
        let mut parts = vec![Vec::new(); line.world() as usize];
        let mut next = 0;
        for RankRows { rank, places } in numbering.pieces(&numbers) {
            parts[rank as usize].push(next..next + places.len());
            next += places.len();
        }
        let packed = match source.fresh() {
            Some(parameters) => {
                PackedRows::of_each_fresh(&parameters.rows(numbers.clone()), &parts)
            }
            None => PackedRows::of_each(&source.read(numbers.clone())?, &parts),
        };
        Ok(Some(swap(line, packed, numbering.rows_of(0, &numbers))?))
    };
    Arriving { len, sh_degree, optional, next_part, waiting: None }
}

/// The rows of another rank of so many that rank 0 deals out.
pub(in crate::backend) fn take<'a>(
    line: &'a RankLine,
    numbering: &'a Numbering,
    sh_degree: u32,
) -> Arriving<impl FnMut() -> Result<Option<Snapshot<Gaussians>>, DeviceError> + 'a> {
    let len = numbering.counts()[line.rank() as usize];
    let mut coming = chunks(numbering.len());
    let next_part = move || {
        let expected = coming.next().map(|numbers| numbering.rows_of(line.rank(), &numbers));
        expected.map(|rows| swap(line, Vec::new(), rows)).transpose()
    };
    Arriving { len, sh_degree, optional: OptionalColumns::NONE, next_part, waiting: None }
}

/// Gives each rank its part, where this one has any, and takes the own one, of so many rows, from rank 0.
fn swap(
    line: &RankLine,
    parts: Vec<PackedRows>,
    rows: usize,
) -> Result<Snapshot<Gaussians>, DeviceError> {
    let mut outgoing: Vec<_> = parts.into_iter().map(Some).collect();
    outgoing.resize_with(line.world() as usize, || None);
    let incoming: Vec<Option<PackedRows>> = line.all_to_all(&outgoing)?;
    let message = || "it has dealt out no rows".to_owned();
    let part = incoming.into_iter().next().flatten();
    part.ok_or_else(|| DeviceError::OfRank { rank: 0, message: message() })?.unpack(0, rows)
}

/// The rows of these numbers with their moments and statistics, on rank 0. `read` reads a rank's own.
pub(in crate::backend) fn read(
    line: &RankLine,
    numbering: &Numbering,
    numbers: &Range<usize>,
    mut read: impl FnMut(Range<usize>) -> Result<Snapshot<Gaussians>, DeviceError>,
) -> Result<Option<Snapshot<Gaussians>>, DeviceError> {
    let pieces = numbering.pieces(numbers);
    let own = pieces.iter().filter(|piece| piece.rank == line.rank());
    let packed = |rows: Snapshot<_>| PackedRows::of(&rows);
    let own: VecDeque<_> =
        own.map(|piece| read(piece.places.clone()).map(packed)).collect::<Result<_, _>>()?;
    let Some(mut of_ranks) = line.gather_first(&own)? else { return Ok(None) };
    let mut all = read(0..0)?;
    for RankRows { rank, places } in pieces {
        let part = of_ranks[rank as usize].pop_front();
        let part = part.map(|part| part.unpack(rank, places.len())).transpose()?;
        let message = || format!("it does not send its rows {places:?}");
        all.append(part.ok_or_else(|| DeviceError::OfRank { rank, message: message() })?);
    }
    Ok(Some(all))
}

/// The parameters of the rows of these numbers, in their order, on rank 0. `sample` has those of a rank's own.
pub(in crate::backend) fn sample(
    line: &RankLine,
    numbering: &Numbering,
    numbers: &[usize],
    sample: impl FnOnce(&[usize]) -> Result<Gaussians, DeviceError>,
) -> Result<Option<Gaussians>, DeviceError> {
    let found: Vec<_> = numbers.iter().map(|&number| numbering.find(number)).collect();
    let own = found.iter().filter(|&&(owner, _)| owner == line.rank()).map(|&(_, place)| place);
    let own = sample(&own.collect::<Vec<_>>())?;
    let sh_degree = own.sh_degree;
    let Some(of_ranks) = line.gather_first(&own)? else { return Ok(None) };
    let asked = (0..line.world()).map(|rank| found.iter().filter(|of| of.0 == rank).count());
    for ((rank, rows), asked) in (0..).zip(&of_ranks).zip(asked) {
        if rows.len() != asked {
            let message = format!("it sends {} of {asked} rows", rows.len());
            return Err(DeviceError::OfRank { rank, message });
        }
    }
    let mut next = vec![0; of_ranks.len()];
    let mut all = Gaussians::empty(sh_degree);
    for (owner, _) in found {
        let row = &mut next[owner as usize];
        all.append(of_ranks[owner as usize].rows(*row..*row + 1));
        *row += 1;
    }
    Ok(Some(all))
}
