//! Ledger of the device's memory: bytes of each label, and whether more fits.

use std::fmt;

use serde::Serialize;

use super::{Bytes, CardSharing};
use crate::layout::MemoryPlace;

/// Number of entries that a refusal lists.
const LISTED: usize = 5;

/// Lifetime and place of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Context and code; never freed.
    Fixed,
    /// Kept as long as the model.
    Region,
    /// Kept for an iteration.
    Scratch,
    /// Page-locked memory of the host.
    Pinned,
}

impl Kind {
    /// Returns the memory (device or host) that holds this kind.
    pub fn place(self) -> MemoryPlace {
        match self {
            Self::Fixed | Self::Region | Self::Scratch => MemoryPlace::Device,
            Self::Pinned => MemoryPlace::Host,
        }
    }
}

/// The memory of one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Name of the memory.
    pub label: &'static str,
    /// Lifetime and place.
    pub kind: Kind,
    /// Bytes in use.
    pub used: Bytes,
    /// Bytes taken from the device. Scratch is mapped under the label of the arena and used under the labels of its
    /// blocks.
    pub mapped: Bytes,
    /// Peak of the mapped or used bytes.
    pub peak: Bytes,
    /// Mapped bytes when the total of the device's entries was at its peak.
    pub at_peak: Bytes,
}

/// Error: a request exceeds the budget.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Refusal {
    /// Label of the request.
    pub label: &'static str,
    /// Bytes that were requested.
    pub wanted: Bytes,
    /// Bytes that all entries hold.
    pub held: Bytes,
    /// Bytes that all entries may hold.
    pub budget: Bytes,
    /// The largest entries.
    pub largest: Vec<Entry>,
    /// State of the card, if other programs leave less of it than the limit does.
    pub sharing: Option<CardSharing>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, held, budget) = (self.wanted.mib(), self.held.mib(), self.budget.mib());
        write!(f, "`{}` needs {wanted:.1} MiB more of the GPU: ", self.label)?;
        let Some(CardSharing { card, foreign, reserve }) = self.sharing else {
            let most = held_most(&self.largest);
            return write!(
                f,
                "{held:.1} of {budget:.1} MiB are taken{most}. Raise --vram-limit, lower \
                 --max-points, or train smaller images with -r"
            );
        };
        let (foreign, card, reserve) = (foreign.gib(), card.gib(), reserve.gib());
        write!(f, "other programs hold {foreign:.1} of {card:.1} GiB, {reserve:.1} stay free")?;
        if self.held.max(self.budget) > Bytes(0) {
            write!(f, ", and {held:.1} of {budget:.1} MiB are taken")?;
        }
        f.write_str(". End other programs, or raise --vram-threshold")
    }
}

/// Returns the largest entry as the end of a sentence; empty if there is no entry.
pub fn held_most(entries: &[Entry]) -> String {
    entries.first().map_or(String::new(), |entry| {
        format!(", most in {} {:.1} MiB", entry.label, entry.mapped.mib())
    })
}

/// Ledger of a device's memory.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    budget: Bytes,
    /// State of the card, if other programs lower the budget.
    sharing: Option<CardSharing>,
    /// Soft limit: exceeded only if less memory does not suffice.
    aim: Option<Bytes>,
    entries: Vec<Entry>,
    peak: Bytes,
    /// Peak since `take_phase_peak` was called last.
    phase_peak: Bytes,
}

impl Ledger {
    /// Creates an empty ledger with this budget.
    pub fn new(budget: Bytes) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Returns the budget in bytes.
    pub fn budget(&self) -> Bytes {
        self.budget
    }

    /// Changes the budget; held memory stays. `sharing` explains a budget that other programs lower.
    pub fn set_budget(&mut self, budget: Bytes, sharing: Option<CardSharing>) {
        (self.budget, self.sharing) = (budget, sharing);
    }

    /// Sets the soft limit, which refuses no request.
    pub fn set_aim(&mut self, aim: Option<Bytes>) {
        self.aim = aim;
    }

    /// Returns the bytes that may be taken without exceeding the budget or the soft limit.
    pub fn left(&self) -> Bytes {
        let most = self.aim.map_or(self.budget, |aim| aim.min(self.budget));
        Bytes(most.0.saturating_sub(self.total().0))
    }

    /// Returns true if `wanted` more bytes exceed the soft limit.
    pub fn exceeds_aim(&self, wanted: Bytes) -> bool {
        self.aim.is_some_and(|aim| self.total().0.saturating_add(wanted.0) > aim.0)
    }

    /// Returns an error if `wanted` more bytes exceed the budget.
    pub fn check(&self, label: &'static str, wanted: Bytes) -> Result<(), Refusal> {
        let held = self.total();
        if held.0.checked_add(wanted.0).is_some_and(|sum| sum <= self.budget.0) {
            return Ok(());
        }
        let (largest, budget, sharing) = (self.largest(), self.budget, self.sharing);
        Err(Refusal { label, wanted, held, budget, largest, sharing })
    }

    /// Records memory of the device or the host. Returns an error if it exceeds the budget.
    pub fn charge(
        &mut self,
        label: &'static str,
        kind: Kind,
        wanted: Bytes,
    ) -> Result<(), Refusal> {
        if kind.place() == MemoryPlace::Device {
            self.check(label, wanted)?;
        }
        let entry = self.entry(label, kind);
        entry.mapped += wanted;
        entry.peak = entry.peak.max(entry.mapped);
        let total = self.total();
        self.phase_peak = self.phase_peak.max(total);
        if total > self.peak {
            self.peak = total;
            self.entries.iter_mut().for_each(|entry| entry.at_peak = entry.mapped);
        }
        Ok(())
    }

    /// Removes memory that was freed.
    pub fn release(&mut self, label: &'static str, kind: Kind, freed: Bytes) {
        let entry = self.entry(label, kind);
        entry.mapped.0 = entry.mapped.0.saturating_sub(freed.0);
    }

    /// Records that a holder which used `before` now uses `after`.
    pub fn set_used(&mut self, label: &'static str, kind: Kind, before: Bytes, after: Bytes) {
        let entry = self.entry(label, kind);
        entry.used.0 = (entry.used.0 + after.0).saturating_sub(before.0);
        entry.peak = entry.peak.max(entry.used);
    }

    /// Returns all entries, in the order of their first charge.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the mapped bytes of the device.
    pub fn total(&self) -> Bytes {
        self.on_device().map(|entry| entry.mapped).sum()
    }

    /// Returns the page-locked bytes of the host.
    pub fn on_host(&self) -> Bytes {
        let on_host = self.entries.iter().filter(|entry| entry.kind.place() == MemoryPlace::Host);
        on_host.map(|entry| entry.mapped).sum()
    }

    /// Returns the peak of the mapped bytes.
    pub fn peak(&self) -> Bytes {
        self.peak
    }

    /// Returns the peak of the mapped bytes since the last call.
    pub fn take_phase_peak(&mut self) -> Bytes {
        let total = self.total();
        std::mem::replace(&mut self.phase_peak, total).max(total)
    }

    /// Resets all peaks to the present values.
    pub fn reset_peak(&mut self) {
        self.peak = self.total();
        for entry in &mut self.entries {
            entry.at_peak = entry.mapped;
            entry.peak = entry.mapped.max(entry.used);
        }
    }

    /// Returns the largest entries of the device, in descending order.
    pub fn largest(&self) -> Vec<Entry> {
        let mut entries: Vec<_> =
            self.on_device().filter(|entry| entry.mapped.0 > 0).copied().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.mapped));
        entries.truncate(LISTED);
        entries
    }

    fn on_device(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.kind.place() == MemoryPlace::Device)
    }

    fn entry(&mut self, label: &'static str, kind: Kind) -> &mut Entry {
        let at = self.entries.iter().position(|entry| entry.label == label && entry.kind == kind);
        let at = at.unwrap_or_else(|| {
            let [used, mapped, peak, at_peak] = [Bytes(0); 4];
            self.entries.push(Entry { label, kind, used, mapped, peak, at_peak });
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_and_the_peak_stays() {
        let mut ledger = Ledger::new(Bytes(100));
        ledger.charge("sh", Kind::Region, Bytes(60)).unwrap();
        ledger.charge("splats", Kind::Scratch, Bytes(30)).unwrap();
        ledger.release("splats", Kind::Scratch, Bytes(25));
        ledger.charge("sh", Kind::Region, Bytes(7)).unwrap();
        assert_eq!((ledger.total(), ledger.peak()), (Bytes(72), Bytes(90)));
        assert_eq!((ledger.entries()[0].mapped, ledger.entries()[1].peak), (Bytes(67), Bytes(30)));
    }

    #[test]
    fn the_parts_of_a_peak_belong_to_one_moment() {
        let mut ledger = Ledger::new(Bytes(100));
        ledger.charge("photographs", Kind::Region, Bytes(40)).unwrap();
        ledger.charge("scratch", Kind::Scratch, Bytes(30)).unwrap();
        ledger.set_used("splats", Kind::Scratch, Bytes(0), Bytes(25));
        ledger.set_used("splats", Kind::Scratch, Bytes(25), Bytes(0));
        ledger.release("photographs", Kind::Region, Bytes(40));
        ledger.charge("scratch", Kind::Scratch, Bytes(20)).unwrap();
        let at_peak = |ledger: &Ledger| ledger.entries().iter().map(|e| e.at_peak.0).collect();
        let parts: Vec<u64> = at_peak(&ledger);
        assert_eq!((ledger.peak(), parts), (Bytes(70), vec![40, 30, 0]));
        ledger.reset_peak();
        let parts: Vec<u64> = at_peak(&ledger);
        assert_eq!((ledger.peak(), parts), (Bytes(50), vec![0, 50, 0]));
        let peaks: Vec<u64> = ledger.entries().iter().map(|entry| entry.peak.0).collect();
        assert_eq!(peaks, [0, 50, 0]);
    }

    #[test]
    fn each_phase_has_its_own_peak() {
        let mut ledger = Ledger::new(Bytes(100));
        ledger.charge("sh", Kind::Region, Bytes(40)).unwrap();
        ledger.charge("scratch", Kind::Scratch, Bytes(30)).unwrap();
        ledger.release("scratch", Kind::Scratch, Bytes(30));
        ledger.reset_peak();
        assert_eq!(ledger.take_phase_peak(), Bytes(70));
        assert_eq!(ledger.take_phase_peak(), Bytes(40));
        ledger.charge("scratch", Kind::Scratch, Bytes(5)).unwrap();
        assert_eq!((ledger.take_phase_peak(), ledger.peak()), (Bytes(45), Bytes(45)));
    }

    #[test]
    fn the_soft_limit_lowers_the_bytes_left_and_refuses_nothing() {
        let mut ledger = Ledger::new(Bytes(100));
        ledger.charge("sh", Kind::Region, Bytes(40)).unwrap();
        assert_eq!(ledger.left(), Bytes(60));
        for (aim, left) in [(Some(Bytes(50)), 10), (Some(Bytes(30)), 0), (Some(Bytes(900)), 60)] {
            ledger.set_aim(aim);
            assert_eq!(ledger.left(), Bytes(left), "{aim:?}");
            assert!(ledger.exceeds_aim(Bytes(left + 1)) != (left == 60), "{aim:?}");
        }
        ledger.set_aim(Some(Bytes(50)));
        ledger.charge("scratch", Kind::Scratch, Bytes(60)).unwrap();
        ledger.set_aim(None);
        assert_eq!(ledger.left(), Bytes(0));
    }

    #[test]
    fn a_refusal_names_the_largest_entries_and_changes_nothing() {
        let mut ledger = Ledger::new(Bytes(3 << 20));
        ledger.charge("small", Kind::Region, Bytes(1 << 19)).unwrap();
        ledger.charge("large", Kind::Region, Bytes(2 << 20)).unwrap();
        let refusal = ledger.charge("more", Kind::Scratch, Bytes(1 << 20)).unwrap_err();
        assert_eq!((refusal.label, refusal.wanted.mib(), refusal.held.mib()), ("more", 1.0, 2.5));
        let largest: Vec<_> = refusal.largest.iter().map(|entry| entry.label).collect();
        assert_eq!((refusal.budget.mib(), largest), (3.0, vec!["large", "small"]));
        assert_eq!(ledger.total(), Bytes(5 << 19));
        assert!(ledger.charge("more", Kind::Scratch, Bytes(u64::MAX)).is_err());
    }

    #[test]
    fn a_refusal_names_the_bytes_of_other_programs_and_the_threshold() {
        let mut ledger = Ledger::new(Bytes(3 << 20));
        let sharing = |card: Bytes, foreign: Bytes, reserve: Bytes| {
            Some(CardSharing { card, foreign, reserve })
        };
        let gib = |tenths: u64| Bytes(tenths * (1 << 30) / 10);
        ledger.set_budget(Bytes(0), sharing(gib(1400), gib(1350), gib(42)));
        let refusal = ledger.charge("sort", Kind::Scratch, Bytes(2 << 20)).unwrap_err();
        let card = refusal.sharing.unwrap();
        assert_eq!((card.foreign, card.card), (gib(1350), gib(1400)));
        assert_eq!((refusal.budget, refusal.held), (Bytes(0), Bytes(0)));
        ledger.set_budget(Bytes(4 << 20), None);
        ledger.charge("sh", Kind::Region, Bytes(3 << 20)).unwrap();
        ledger.set_budget(Bytes(4 << 20), sharing(gib(160), gib(155), gib(4)));
        let text = ledger.charge("more", Kind::Scratch, Bytes(2 << 20)).unwrap_err().to_string();
        for part in ["3.0 of 4.0 MiB are taken.", "--vram-threshold"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn pinned_memory_is_listed_and_not_part_of_the_budget() {
        let mut ledger = Ledger::new(Bytes(10));
        ledger.charge("staging", Kind::Pinned, Bytes(1000)).unwrap();
        assert_eq!((ledger.total(), ledger.entries()[0].mapped), (Bytes(0), Bytes(1000)));
        ledger.charge("sh", Kind::Pinned, Bytes(30)).unwrap();
        ledger.charge("geometry", Kind::Region, Bytes(7)).unwrap();
        assert_eq!((ledger.on_host(), ledger.total()), (Bytes(1030), Bytes(7)));
        assert_eq!(ledger.largest().len(), 1);
    }
}
