//! What must be equal on all ranks, and what is said where it is not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of thing must be equal. The program maps it to an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimKind {
    /// The program or a library.
    Version,
    /// What the user asked for.
    Options,
    /// The scene's files.
    Scene,
}

/// Something that must be equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name, in words: `number of photographs`.
    pub what: String,
    /// Its value on this rank; compared as text, shown where it differs.
    pub value: String,
    /// What kind of thing it is.
    pub kind: ClaimKind,
}

/// Two ranks that do not fit together. Printed it is a sentence with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What differs.
    pub what: String,
    /// The rank that differs.
    pub rank: u32,
    /// Its value.
    pub value: String,
    /// The rank that it differs from.
    pub from_rank: u32,
    /// That rank's value.
    pub from_value: String,
    /// What kind of thing differs.
    pub kind: ClaimKind,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = match self.kind {
            ClaimKind::Version => "start the same program with the same libraries on all hosts",
            ClaimKind::Options => "start all ranks with the same options",
            ClaimKind::Scene => "give all ranks the same files",
        };
        let Self { what, rank, value, from_rank, from_value, .. } = self;
        write!(f, "{what}: {value} on rank {rank}, but {from_value} on rank {from_rank}; {remedy}")
    }
}

/// The first claim of rank 0 that another rank does not share; `claims` are by rank.
pub(crate) fn first_difference(claims: &[&[Claim]]) -> Option<Refusal> {
    const NOTHING: &str = "nothing";
    let (lead, others) = claims.split_first()?;
    let value_in = |claims: &[Claim], what: &str| {
        claims.iter().find(|claim| claim.what == what).map(|claim| claim.value.clone())
    };
    let differs = |claim: &Claim, rank: u32, of_lead: Option<String>, of_rank: Option<String>| {
        (of_lead != of_rank).then(|| Refusal {
            what: claim.what.clone(),
            rank,
            value: of_rank.unwrap_or_else(|| NOTHING.to_owned()),
            from_rank: 0,
            from_value: of_lead.unwrap_or_else(|| NOTHING.to_owned()),
            kind: claim.kind,
        })
    };
    for claim in *lead {
        for (rank, other) in (1..).zip(others) {
            let found = value_in(other, &claim.what);
            if let Some(refusal) = differs(claim, rank, Some(claim.value.clone()), found) {
                return Some(refusal);
            }
        }
    }
    // What rank 0 does not claim at all.
    (1..).zip(others).find_map(|(rank, other)| {
        other.iter().find_map(|claim| {
            differs(claim, rank, value_in(lead, &claim.what), Some(claim.value.clone()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(what: &str, value: &str) -> Claim {
        Claim { what: what.to_owned(), value: value.to_owned(), kind: ClaimKind::Scene }
    }

    #[test]
    fn the_first_difference_is_told_with_both_values() {
        let lead = [claim("a", "1"), claim("b", "2")];
        let turned = [claim("b", "2"), claim("a", "1")];
        assert_eq!(first_difference(&[&lead, &turned, &lead]), None);
        assert_eq!(first_difference(&[&lead]), None);
        let text = |claims: &[&[Claim]]| first_difference(claims).unwrap().to_string();
        assert_eq!(
            text(&[&lead, &lead, &[claim("a", "1"), claim("b", "3")]]),
            "b: 3 on rank 2, but 2 on rank 0; give all ranks the same files"
        );
        assert!(text(&[&lead, &[claim("a", "1")]]).starts_with("b: nothing on rank 1, but 2 on"));
        let more = [claim("a", "1"), claim("b", "2"), claim("c", "4")];
        assert!(text(&[&lead, &more]).starts_with("c: 4 on rank 1, but nothing on rank 0"));
    }
}
