//! Where all goes well.

use splat_mesh::random::mix;

use super::{on_all, on_each_exchange};
use crate::exchange::{Exchange, ExchangeError};

on_each_exchange!(
    each_part_arrives_where_it_was_sent,
    random_parts_of_any_size_arrive_whole,
    every_rank_gathers_the_same_by_rank,
    a_broadcast_is_what_rank_0_gives,
    hundreds_of_small_calls_follow_one_another,
    a_rank_that_is_behind_gets_all_that_was_broadcast,
    a_group_of_one_gets_its_own_back,
    a_wrong_number_of_parts_is_refused_and_no_more,
    only_rank_0_gives_what_is_broadcast,
);

/// 64 bits that depend on all of the numbers.
fn mixed(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, number| mix(state ^ number))
}

/// Bytes that tell where they come from and where they go.
fn part(round: u64, from: u32, to: u32, length: usize) -> Vec<u8> {
    let seed = mixed(&[round, u64::from(from), u64::from(to)]);
    let words = (0..).flat_map(|at| mixed(&[seed, at]).to_le_bytes());
    words.take(length).collect()
}

/// Lengths of 0 to 2^20 bytes, a third of them 0, all magnitudes alike.
fn length(round: u64, from: u32, to: u32) -> usize {
    let random = mixed(&[1_234, round, u64::from(from), u64::from(to)]);
    let magnitude = random % 31;
    if magnitude > 20 { 0 } else { usize::try_from((random >> 32) % (1 << magnitude)).unwrap() + 1 }
}

fn each_part_arrives_where_it_was_sent<E: Exchange>(group: fn(u32) -> Vec<E>) {
    for world in 1..=4 {
        let mut members = group(world);
        let all = on_all(&mut members, |member| {
            let from = member.rank();
            assert_eq!(member.world(), world);
            let outgoing =
                (0..world).map(|to| vec![u8::try_from(10 * from + to).unwrap(); to as usize]);
            member.all_to_all(outgoing.collect()).unwrap()
        });
        for (to, incoming) in (0..).zip(all) {
            let sent =
                (0..world).map(|from| vec![u8::try_from(10 * from + to).unwrap(); to as usize]);
            assert_eq!(incoming, sent.collect::<Vec<_>>(), "to rank {to} of {world}");
        }
    }
}

fn random_parts_of_any_size_arrive_whole<E: Exchange>(group: fn(u32) -> Vec<E>) {
    for world in 1..=4 {
        on_all(&mut group(world), |member| {
            let own = member.rank();
            for round in 0..12 {
                let sent = |from, to| part(round, from, to, length(round, from, to));
                let outgoing = (0..world).map(|to| sent(own, to)).collect();
                let incoming = member.all_to_all(outgoing).unwrap();
                assert_eq!(incoming.len(), world as usize);
                for (from, found) in (0..).zip(incoming) {
                    assert!(found == sent(from, own), "round {round}, {from} to {own} of {world}");
                }
            }
        });
    }
    let lengths: Vec<_> = (0..48).map(|round| length(round, 1, 0)).collect();
    assert!(lengths.contains(&0) && lengths.iter().any(|&length| length > 1 << 18), "{lengths:?}");
}

fn every_rank_gathers_the_same_by_rank<E: Exchange>(group: fn(u32) -> Vec<E>) {
    for world in 1..=4 {
        let sent = |rank| part(5, rank, 0, [70_001, 0, 3, 200_003][rank as usize]);
        let all =
            on_all(&mut group(world), |member| member.all_gather(sent(member.rank())).unwrap());
        for gathered in all {
            assert!(gathered == (0..world).map(sent).collect::<Vec<_>>(), "world {world}");
        }
    }
}

fn a_broadcast_is_what_rank_0_gives<E: Exchange>(group: fn(u32) -> Vec<E>) {
    for world in 1..=4 {
        let mut members = group(world);
        for length in [0, 1, 300_007] {
            let all = on_all(&mut members, |member| {
                let bytes = (member.rank() == 0).then(|| part(6, 0, 0, length));
                member.broadcast(bytes).unwrap()
            });
            assert_eq!(all.len(), world as usize);
            assert!(
                all.iter().all(|found| *found == part(6, 0, 0, length)),
                "world {world}, {length}"
            );
        }
    }
}

fn hundreds_of_small_calls_follow_one_another<E: Exchange>(group: fn(u32) -> Vec<E>) {
    on_all(&mut group(3), |member| {
        let own = member.rank();
        for round in 0..200 {
            let sent = |from, to| part(round, from, to, 8 + from as usize);
            let incoming = member.all_to_all((0..3).map(|to| sent(own, to)).collect()).unwrap();
            assert_eq!(incoming, [0, 1, 2].map(|from| sent(from, own)));
            let gathered = member.all_gather(sent(own, 9)).unwrap();
            assert_eq!(gathered, [0, 1, 2].map(|from| sent(from, 9)));
            let given = member.broadcast((own == 0).then(|| sent(0, 8))).unwrap();
            assert_eq!(given, sent(0, 8));
        }
    });
}

fn a_rank_that_is_behind_gets_all_that_was_broadcast<E: Exchange>(group: fn(u32) -> Vec<E>) {
    on_all(&mut group(2), |member| {
        for round in 0..20 {
            let sent = part(round, 0, 1, 300_000);
            let bytes = (member.rank() == 0).then(|| sent.clone());
            assert!(member.broadcast(bytes).unwrap() == sent, "round {round}");
        }
    });
}

fn a_group_of_one_gets_its_own_back<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut alone = group(1).remove(0);
    assert_eq!((alone.rank(), alone.world()), (0, 1));
    assert_eq!(alone.all_to_all(vec![vec![1, 2]]).unwrap(), [[1, 2]]);
    assert_eq!(alone.all_gather(vec![3]).unwrap(), [[3]]);
    assert_eq!(alone.broadcast(Some(vec![4, 5])).unwrap(), [4, 5]);
    alone.aborter().abort();
    assert_eq!(alone.all_gather(vec![3]), Err(ExchangeError::Aborted));
}

fn a_wrong_number_of_parts_is_refused_and_no_more<E: Exchange>(group: fn(u32) -> Vec<E>) {
    on_all(&mut group(2), |member| {
        for found in [0, 1, 3] {
            let error = member.all_to_all(vec![vec![1]; found]).unwrap_err();
            assert_eq!(error, ExchangeError::WrongParts { found, world: 2 });
        }
        let incoming = member.all_to_all(vec![vec![1]; 2]).unwrap();
        assert_eq!(incoming, [[1], [1]], "nothing was sent before");
    });
}

fn only_rank_0_gives_what_is_broadcast<E: Exchange>(group: fn(u32) -> Vec<E>) {
    on_all(&mut group(2), |member| {
        let is_giver = member.rank() == 0;
        let wrong = member.broadcast((!is_giver).then(|| vec![1])).unwrap_err();
        let not_the_giver = ExchangeError::NotTheGiver { rank: 1 };
        assert_eq!(wrong, if is_giver { ExchangeError::NothingGiven } else { not_the_giver });
        assert_eq!(member.broadcast(is_giver.then(|| vec![2])).unwrap(), [2]);
    });
}
