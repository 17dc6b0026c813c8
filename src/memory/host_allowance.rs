//! Limit on the host's memory that a run page-locks for tables that would otherwise be on a GPU.

use std::fmt;

use super::{Bytes, HostState, Limit};

/// Divisor of the host's memory: this part stays with the system, since page-locked memory cannot be swapped.
const RESERVED_SHARE: u64 = 32;

/// Limit on page-locked memory.
#[derive(Clone, Copy, Debug)]
pub struct HostAllowance {
    limit: Limit,
    /// Processes of the run on this host.
    ranks_here: u32,
    /// Bytes of spare memory that this process may page-lock.
    share: Bytes,
}

/// Reason for a request of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostDemand {
    /// Tables of a model of the present size.
    Model,
    /// Tables of a model that grows.
    Growth,
}

impl HostDemand {
    /// Returns the remedy as the end of a sentence that names another remedy first.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Model => ", or give --offload none",
            Self::Growth => ", lower --max-points, or give --offload none",
        }
    }
}

impl Default for HostAllowance {
    /// Allows all memory that the system can spare.
    fn default() -> Self {
        Self::new(Limit::Percent(100.0), 1)
    }
}

impl HostAllowance {
    /// Creates the limit of one of `ranks_here` processes of a run on this host, within `--host-limit`.
    pub fn new(limit: Limit, ranks_here: u32) -> Self {
        Self { limit, ranks_here: ranks_here.max(1), share: Bytes(u64::MAX) }
    }

    /// Divides the spare memory equally among the processes of the run. Call it before any process page-locks memory.
    pub fn shared(self, state: HostState) -> Self {
        let share = spare(state).0 / u64::from(self.ranks_here);
        Self { share: if self.ranks_here > 1 { Bytes(share) } else { self.share }, ..self }
    }

    /// Returns the largest request on a host with this total memory.
    pub fn most(self, total: Bytes) -> Bytes {
        self.limit.on(total)
    }

    /// Returns the bytes that may be page-locked beside `held` page-locked bytes.
    pub fn left(self, state: HostState, held: Bytes) -> Bytes {
        let share = Bytes(self.share.0.saturating_sub(held.0));
        self.within_limit(state, held).min(spare(state)).min(share)
    }

    /// Returns an error if `wanted` more bytes exceed the limit.
    pub fn check(
        self,
        state: HostState,
        held: Bytes,
        label: &'static str,
        wanted: Bytes,
        demand: HostDemand,
    ) -> Result<(), HostRefusal> {
        let left = self.left(state, held);
        if wanted <= left {
            return Ok(());
        }
        let is_limited = self.within_limit(state, held) == left;
        let allowance = self;
        Err(HostRefusal { label, wanted, demand, left, held, allowance, state, is_limited })
    }

    fn within_limit(self, state: HostState, held: Bytes) -> Bytes {
        let limit = self.limit.on(state.total);
        Bytes(limit.0.saturating_sub(state.own.0).saturating_sub(held.0))
    }
}

/// Returns the available bytes less the system's reserve.
fn spare(state: HostState) -> Bytes {
    Bytes(state.available.0.saturating_sub(state.total.0 / RESERVED_SHARE))
}

/// Error: the host has no memory for a part of the model.
#[derive(Clone, Debug, thiserror::Error)]
pub struct HostRefusal {
    /// Label of the memory.
    pub label: &'static str,
    /// Bytes that were requested.
    pub wanted: Bytes,
    /// Reason for the request.
    pub demand: HostDemand,
    /// Bytes that may still be taken.
    pub left: Bytes,
    /// Bytes that the program has page-locked.
    pub held: Bytes,
    /// Limit that applied.
    pub allowance: HostAllowance,
    /// State of the host's memory.
    pub state: HostState,
    /// True if the limit, not the available memory, refused the request.
    pub is_limited: bool,
}

impl fmt::Display for HostRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostState { total, available, own } = self.state;
        let HostAllowance { limit, ranks_here, .. } = self.allowance;
        let shared = match ranks_here {
            1 => String::new(),
            ranks => format!(" to the {ranks} ranks of this host"),
        };
        write!(
            f,
            "`{}` needs {:.1} MiB of RAM, {:.1} are left: {:.1} of --host-limit {} ({:.1}) are taken, {:.1} \
             are free{shared}. ",
            self.label,
            self.wanted.mib(),
            self.left.mib(),
            (own + self.held).mib(),
            limit,
            limit.on(total).mib(),
            available.mib(),
        )?;
        let remedy = if self.is_limited { "Raise --host-limit" } else { "End other programs" };
        write!(f, "{remedy}{}", self.demand.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn state(total: u64, available: u64, own: u64) -> HostState {
        let mib = |mib: u64| Bytes(mib * MIB);
        HostState { total: mib(total), available: mib(available), own: mib(own) }
    }

    #[test]
    fn the_limit_and_the_available_memory_both_hold() {
        let half = HostAllowance::new(Limit::Percent(50.0), 1);
        // The limit leaves 1600 of 3200 MiB; 100 and 300 are held.
        assert_eq!(half.left(state(3200, 3000, 100), Bytes(300 * MIB)), Bytes(1200 * MIB));
        // The system keeps 100 of 700.
        assert_eq!(half.left(state(3200, 700, 100), Bytes(300 * MIB)), Bytes(600 * MIB));
        assert_eq!(half.left(state(3200, 50, 100), Bytes(0)), Bytes(0));
        assert_eq!(half.left(state(3200, 3000, 1700), Bytes(0)), Bytes(0));
        assert_eq!(half.most(Bytes(3200 * MIB)), Bytes(1600 * MIB));
    }

    #[test]
    fn ranks_of_one_host_get_equal_shares_in_any_order() {
        let tight = state(3200, 700, 100);
        let [one, four] =
            [1, 4].map(|ranks| HostAllowance::new(Limit::Percent(50.0), ranks).shared(tight));
        // The system keeps 100 of 700; the limit applies to each process.
        assert_eq!(one.left(tight, Bytes(0)), Bytes(600 * MIB));
        assert_eq!(four.left(tight, Bytes(0)), Bytes(150 * MIB));
        // Other ranks have taken their shares, or other programs have taken the memory.
        assert_eq!(four.left(state(3200, 250, 100), Bytes(0)), Bytes(150 * MIB));
        assert_eq!(four.left(state(3200, 200, 100), Bytes(0)), Bytes(100 * MIB));
        assert_eq!(four.left(tight, Bytes(100 * MIB)), Bytes(50 * MIB));
        let refusal = four.check(tight, Bytes(0), "sh", Bytes(151 * MIB), HostDemand::Model);
        let refusal = refusal.unwrap_err().to_string();
        let words = "700.0 are free to the 4 ranks of this host. End other programs, or give";
        assert!(refusal.contains(words), "{refusal}");
    }

    #[test]
    fn a_refusal_names_the_bytes_the_state_and_the_remedy() {
        let half = HostAllowance::new(Limit::Percent(50.0), 1);
        let held = Bytes(300 * MIB);
        let check = |state, wanted: u64| {
            half.check(state, held, "sh", Bytes(wanted * MIB), HostDemand::Growth)
        };
        assert!(check(state(3200, 3000, 100), 1200).is_ok());
        let refusal = check(state(3200, 3000, 100), 1201).unwrap_err().to_string();
        for part in
            ["`sh` needs 1201.0 MiB", "1200.0 are left", "400.0", "1600.0", "Raise --host-limit"]
        {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
        let refusal = check(state(3200, 700, 100), 601).unwrap_err().to_string();
        assert!(refusal.contains("End other programs, lower --max-points"), "{refusal}");
    }
}
