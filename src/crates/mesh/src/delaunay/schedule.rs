//! Who inserts which point when.

use rayon::prelude::*;

use super::DelaunayError;
use super::ground::Ground;
use super::insertion::{GHOST, Link, Slots};
use super::insertion::{Homes, first_fit};
use super::insertion::{Outcome, Worker};
use super::order::Order;
use super::predicates::{are_collinear, orientation};

/// How work is shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Pieces that the curve is cut in, which threads fill at once.
    pub(super) pieces: usize,
    /// Points that one thread inserts before the work is shared.
    pub(super) alone: usize,
}

/// Most pieces: a piece is a byte, and one is nobody's.
const MOST_PIECES: usize = 128;

/// The piece of names that are not yet to be inserted.
const NOBODY: u8 = u8::MAX;

/// Fewer points than this a piece are not worth sharing.
const WORTH_SHARING: usize = 128;

/// Slots that a point takes in the long run: 24 pi² / 35 = 6.77 tetrahedra of points at random
/// (Meijering, "Interface area, edge length, and number of vertices in crystal aggregates with
/// random nucleation", 1953), and some room.
const SLOTS_PER_POINT: usize = 7;

/// Slots beyond that a worker gets at once.
const SPARE_SLOTS: usize = 4_096;

/// Points at which a piece looks for a place to start.
const STARTS: usize = 16;

/// Triangulation in progress.
struct Site<'a> {
    order: &'a Order,
    slots: Slots,
    homes: Homes,
    /// Who works alone, and keeps the free slots between phases.
    alone: Worker,
    /// Piece of each name.
    pieces: Vec<u8>,
}

/// Triangulates ordered points.
pub(super) fn triangulate(order: &Order, shares: Shares) -> Result<Slots, DelaunayError> {
    let first = first_corners(order)?;
    let mut slots = Slots::default();
    slots.reserve(order.points.len() * SLOTS_PER_POINT + SPARE_SLOTS)?;
    let start = first_tetrahedron(&mut slots, first)?;
    let mut site = Site {
        order,
        slots,
        homes: Homes::of(order.points.len()),
        alone: Worker { at: start, ..Worker::default() },
        pieces: Vec::new(),
    };
    let pieces = shares.pieces.min(MOST_PIECES);
    for round in order.rounds.windows(2) {
        let names = name(round[0])..name(round[1]);
        let pending = names.filter(|name| !first.contains(name)).collect();
        if round[1] > shares.alone && pieces > 1 {
            site.insert_shared(pending, round[0]..round[1], pieces)?;
        } else {
            site.insert_alone(&pending)?;
        }
    }
    for &slot in &site.alone.free {
        site.slots.clear(slot);
    }
    Ok(site.slots)
}

/// A count of points as a name; there are never more than 2^31.
fn name(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(GHOST)
}

/// The first four names that span space, in positive order.
fn first_corners(order: &Order) -> Result<[u32; 4], DelaunayError> {
    let points = &order.points;
    let flat = || DelaunayError::Flat { distinct: points.len() };
    let after = |from: usize, fits: &dyn Fn(usize) -> bool| {
        (from..points.len()).find(|&at| fits(at)).ok_or_else(flat)
    };
    let (a, b) = (after(0, &|_| true)?, after(1, &|_| true)?);
    let c = after(2, &|at| !are_collinear(points[a], points[b], points[at]))?;
    let side = |at: usize| orientation(points[a], points[b], points[c], points[at]);
    let d = after(c + 1, &|at| side(at) != 0.0)?;
    let corners = if side(d) > 0.0 { [a, b, c, d] } else { [b, a, c, d] };
    Ok(corners.map(name))
}

/// Writes a tetrahedron and the ghosts around it; returns its slot.
fn first_tetrahedron(slots: &mut Slots, corners: [u32; 4]) -> Result<u32, DelaunayError> {
    let mut range = slots.grow(5)?;
    let Some(inner) = range.next() else {
        return Err(DelaunayError::TooManyTetrahedra { most: 0 });
    };
    slots.write(inner, corners);
    for (corner, slot) in range.enumerate() {
        let mut outer = corners;
        outer[corner] = GHOST;
        outer.swap((corner + 1) & 3, (corner + 2) & 3);
        slots.write(slot, outer);
    }
    let faces: Vec<Link> = (inner..inner + 5)
        .flat_map(|slot| (0..4).map(move |corner| Link::new(slot, corner)))
        .collect();
    let names = |face: Link| {
        let mut corners = slots.corners(face.slot());
        corners[face.corner()] = u32::MAX;
        corners.sort_unstable();
        corners
    };
    for &face in &faces {
        for &other in faces.iter().filter(|&&other| other != face && names(other) == names(face)) {
            slots.link(face, other);
        }
    }
    Ok(inner)
}

impl Site<'_> {
    /// Inserts points one after the other.
    fn insert_alone(&mut self, pending: &[u32]) -> Result<(), DelaunayError> {
        for (done, &name) in pending.iter().enumerate() {
            loop {
                let Self { order, slots, homes, alone, .. } = self;
                let ground = Ground { slots, points: &order.points, order, homes, pieces: None };
                let Outcome::Starved(missing) = alone.insert(&ground, name) else { break };
                self.feed(missing, pending.len() - done)?;
            }
        }
        Ok(())
    }

    /// Gives the lone worker at least `missing` more slots, and what `points` may need.
    fn feed(&mut self, missing: usize, points: usize) -> Result<(), DelaunayError> {
        let usual = (points * SLOTS_PER_POINT).min(self.slots.len() / 8) + SPARE_SLOTS;
        let rest = std::mem::replace(&mut self.alone.fresh, self.slots.grow(missing.max(usual))?);
        self.alone.free.extend(rest);
        Ok(())
    }

    /// Inserts the points of a round by many threads, then those that were put off by fewer, the
    /// last by one.
    fn insert_shared(
        &mut self,
        mut pending: Vec<u32>,
        round: std::ops::Range<usize>,
        most_pieces: usize,
    ) -> Result<(), DelaunayError> {
        self.pieces.resize(self.order.points.len(), NOBODY);
        // Twice each: cuts in place, then moved by half a piece.
        let (mut pieces, mut moved) = (most_pieces, false);
        while pieces > 1 && pending.len() > pieces * WORTH_SHARING {
            let cuts = cuts(&round, pieces, moved);
            self.own(&cuts, round.end);
            let (left, starved) = self.phase(&pending, cuts.len() + 1)?;
            // A phase that gets nowhere twice is left to fewer threads, fed or not.
            let stuck = left.len() == pending.len();
            pending = left;
            if !starved || stuck {
                pieces = if moved { pieces / 2 } else { pieces };
                moved = !moved;
            }
        }
        self.insert_alone(&pending)
    }

    /// Gives names before `end` to pieces: each round is cut at the same places of the curve.
    fn own(&mut self, cuts: &[usize], end: usize) {
        let order = self.order;
        let places: Vec<u64> = cuts.iter().map(|&cut| order.place(cut)).collect();
        for round in order.rounds.windows(2).filter(|round| round[1] <= end) {
            let mut from = round[0];
            for (piece, cut) in (0_u8..).zip(places.iter().map(Some).chain([None])) {
                let to = cut.map_or(round[1], |&cut| {
                    from + first_fit(round[1] - from, |at| order.place(from + at) >= cut)
                });
                self.pieces[from..to].fill(piece);
                from = to;
            }
        }
    }

    /// Lets a worker a piece insert its points; returns those put off, by name, and whether slots
    /// ran short.
    fn phase(&mut self, pending: &[u32], pieces: usize) -> Result<(Vec<u32>, bool), DelaunayError> {
        let mut crew = self.crew(pending, pieces)?;
        let ground = self.ground(Some(&self.pieces));
        let results: Vec<(Vec<u32>, bool)> = crew
            .par_iter_mut()
            .with_max_len(1)
            .map(|(worker, names)| {
                worker
                    .as_mut()
                    .map_or((names.to_vec(), false), |worker| work(worker, &ground, names))
            })
            .collect();
        for worker in crew.into_iter().filter_map(|(worker, _)| worker) {
            self.alone.at = worker.at;
            self.alone.free.extend(worker.fresh.rev());
            self.alone.free.extend(worker.free);
        }
        let starved = results.iter().any(|&(_, starved)| starved);
        Ok((results.into_iter().flat_map(|(left, _)| left).collect(), starved))
    }

    /// A worker a piece, with slots and a place to start, and its points; no worker where a piece
    /// has no tetrahedron yet.
    fn crew<'p>(&mut self, pending: &'p [u32], pieces: usize) -> Result<Crew<'p>, DelaunayError> {
        let mut crew = Crew::with_capacity(pieces);
        let (mut at, mut from) = (self.alone.at, 0);
        self.alone.free.extend(std::mem::take(&mut self.alone.fresh));
        for slot in &self.alone.free {
            self.slots.clear(*slot);
        }
        for piece in (0..NOBODY).take(pieces) {
            let rest = &pending[from..];
            let count = rest.partition_point(|&name| self.pieces[name as usize] <= piece);
            let names = &rest[..count];
            from += count;
            let Some(start) = self.start(piece, names, &mut at) else {
                crew.push((None, names));
                continue;
            };
            let wanted = names.len() * SLOTS_PER_POINT + SPARE_SLOTS;
            let used = self.alone.free.len().min(wanted);
            let free = self.alone.free.split_off(self.alone.free.len() - used);
            let fresh = self.slots.grow(wanted - used)?;
            crew.push((Some(Worker { piece, free, fresh, at: start, ..Worker::default() }), names));
        }
        Ok(crew)
    }

    /// A tetrahedron that has a corner of a piece, near one of its points; walks start `at`.
    fn start(&self, piece: u8, names: &[u32], at: &mut u32) -> Option<u32> {
        let (ground, mut choice) = (self.ground(None), 0);
        names.iter().step_by(names.len() / STARTS + 1).find_map(|&name| {
            ground.walk(at, self.order.points[name as usize], piece, &mut choice);
            let corners = self.slots.corners(*at);
            corners
                .iter()
                .any(|&name| self.pieces.get(name as usize) == Some(&piece))
                .then_some(*at)
        })
    }

    fn ground<'a>(&'a self, pieces: Option<&'a [u8]>) -> Ground<'a> {
        let Self { order, slots, homes, .. } = self;
        Ground { slots, points: &order.points, order, homes, pieces }
    }
}

/// Workers, each with the names that it inserts.
type Crew<'p> = Vec<(Option<Worker>, &'p [u32])>;

/// Inserts points until slots run short; returns those put off.
fn work(worker: &mut Worker, ground: &Ground<'_>, names: &[u32]) -> (Vec<u32>, bool) {
    let mut left = Vec::new();
    for (done, &name) in names.iter().enumerate() {
        match worker.insert(ground, name) {
            Outcome::Inserted => {}
            Outcome::PutOff => left.push(name),
            Outcome::Starved(_) => {
                left.extend(&names[done..]);
                return (left, true);
            }
        }
    }
    (left, false)
}

/// Names of a round at which its curve is cut.
fn cuts(round: &std::ops::Range<usize>, pieces: usize, moved: bool) -> Vec<usize> {
    let at = |halves: usize| round.start + round.len() * halves / (2 * pieces);
    if moved {
        (0..pieces).map(|piece| at(2 * piece + 1)).collect()
    } else {
        (1..pieces).map(|piece| at(2 * piece)).collect()
    }
}
