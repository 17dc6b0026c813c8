//! The most memory that each phase of a run took.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::phase::Phase;
use crate::memory::Bytes;

/// The most memory at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhasePeak {
    /// Taken of a device that has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram: Option<Bytes>,
    /// Resident on the host, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Bytes>,
}

impl PhasePeak {
    /// Of the device's memory where it has its own, otherwise of the host's.
    pub fn of_device(self) -> Option<Bytes> {
        self.vram.or(self.host)
    }

    fn raised(self, other: Self) -> Self {
        Self { vram: self.vram.max(other.vram), host: self.host.max(other.host) }
    }
}

/// The peaks of the phases that a run has been in; in JSON an object of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhasePeaks {
    /// In the order of [`Phase::ALL`].
    of_phases: [Option<PhasePeak>; Phase::ALL.len()],
}

impl PhasePeaks {
    /// The peak of a phase, if the run was in it.
    pub fn of(&self, phase: Phase) -> Option<PhasePeak> {
        self.iter().find(|(found, _)| *found == phase).map(|(_, peak)| peak)
    }

    /// The phases that the run was in, with their peaks.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, PhasePeak)> {
        Phase::ALL.into_iter().zip(self.of_phases).filter_map(|(phase, peak)| Some((phase, peak?)))
    }

    /// Takes in what a phase needed now.
    pub fn raise(&mut self, phase: Phase, peak: PhasePeak) {
        for (known, found) in Phase::ALL.into_iter().zip(&mut self.of_phases) {
            if known == phase {
                *found = Some(found.unwrap_or_default().raised(peak));
            }
        }
    }

    /// Takes in what another start of the program needed.
    pub fn raise_all(&mut self, other: &Self) {
        other.iter().for_each(|(phase, peak)| self.raise(phase, peak));
    }

    /// The most of all phases.
    pub fn most(&self) -> PhasePeak {
        self.iter().fold(PhasePeak::default(), |most, (_, peak)| most.raised(peak))
    }

    /// The most of the device's own memory outside of evaluations and saving.
    pub fn vram_of_training(&self) -> Option<Bytes> {
        let phases = [Phase::Training, Phase::DensityControl, Phase::Coarse];
        phases.into_iter().filter_map(|phase| self.of(phase)?.vram).max()
    }
}

impl Serialize for PhasePeaks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(phase, peak)| (phase.key(), peak)))
    }
}

impl<'de> Deserialize<'de> for PhasePeaks {
    /// Phases of a later version are passed over.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = BTreeMap::<String, PhasePeak>::deserialize(deserializer)?;
        let of_phases = Phase::ALL.map(|phase| found.get(phase.key()).copied());
        Ok(Self { of_phases })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(vram: u64) -> PhasePeak {
        PhasePeak { vram: Some(Bytes(vram)), host: None }
    }

    #[test]
    fn each_phase_keeps_its_most() {
        let mut peaks = PhasePeaks::default();
        assert_eq!((peaks.vram_of_training(), peaks.most().of_device()), (None, None));
        for (phase, vram) in [(Phase::Training, 7), (Phase::Evaluation, 9), (Phase::Training, 5)] {
            peaks.raise(phase, peak(vram));
        }
        assert_eq!(peaks.of(Phase::Training), Some(peak(7)));
        assert_eq!((peaks.of(Phase::Coarse), peaks.vram_of_training()), (None, Some(Bytes(7))));
        let mut other = PhasePeaks::default();
        other.raise(Phase::Coarse, PhasePeak { vram: None, host: Some(Bytes(3)) });
        peaks.raise_all(&other);
        let text = serde_json::to_string(&peaks).unwrap();
        let expected = r#"{"training":{"vram":7},"coarse":{"host":3},"evaluation":{"vram":9}}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<PhasePeaks>(&text).unwrap(), peaks);
        assert_eq!(peaks.most(), PhasePeak { vram: Some(Bytes(9)), host: Some(Bytes(3)) });
    }
}
