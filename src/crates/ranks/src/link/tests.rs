use std::net::TcpListener;

use super::*;
use crate::coordinator::{CoordinatorOptions, SILENCE};
use crate::join::{Joined, join};
use crate::launch::{Launch, Rendezvous, Token};

/// Longer than any step of a test.
const LONG: Duration = Duration::from_secs(30);

/// A coordinator outside of all ranks, and its ranks.
struct Group {
    coordinator: Coordinator,
    links: Vec<Link>,
}

fn group(world: u32, silence: Duration) -> Group {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let options = CoordinatorOptions::of_supervisor(world, Token::for_tests(), LONG);
    let options = CoordinatorOptions { silence, ..options };
    let coordinator = Coordinator::start(listener, options).unwrap();
    let rendezvous = Rendezvous::Supervisor { address };
    let links = joined(world, &rendezvous).into_iter().map(|joined| joined.link).collect();
    Group { coordinator, links }
}

fn joined(world: u32, rendezvous: &Rendezvous) -> Vec<Joined> {
    let ranks = (0..world).map(|rank| {
        let rendezvous = rendezvous.clone();
        let launch = Launch::for_tests(rank, world, rendezvous, Some(Token::for_tests()));
        thread::spawn(move || join(&launch, &[], LONG).unwrap())
    });
    // All threads start before the first is joined.
    let ranks: Vec<_> = ranks.collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn watched(link: &Link) -> Receiver<Notice> {
    let (sender, events) = channel();
    let ends = sender.clone();
    link.watch(
        move || sender.send(Notice::Stop).unwrap(),
        move |lost| ends.send(Notice::End(lost)).unwrap(),
    )
    .unwrap();
    events
}

fn end_of(events: &Receiver<Notice>) -> LostRank {
    match events.recv_timeout(LONG).unwrap() {
        Notice::End(lost) => lost,
        Notice::Stop => panic!("a stop"),
    }
}

#[test]
fn a_stop_reaches_all_including_later_watchers() {
    let Group { coordinator, links } = group(3, SILENCE);
    let early = watched(&links[0]);
    links[1].request_stop();
    assert_eq!(early.recv_timeout(LONG), Ok(Notice::Stop));
    for link in &links[1..] {
        assert_eq!(watched(link).recv_timeout(LONG), Ok(Notice::Stop));
    }
    // A second request has no effect.
    coordinator.stop();
    links.iter().for_each(Link::leave);
    assert!(early.recv_timeout(LONG).is_err(), "the watch ends with the link");
}

#[test]
fn a_rank_that_disconnects_is_lost_and_the_first_loss_is_reported() {
    let Group { coordinator, mut links } = group(3, SILENCE);
    let events = watched(&links[0]);
    links[2].progress(12_340);
    // A heartbeat must carry the progress.
    thread::sleep(HEARTBEAT * 3);
    drop(links.pop());
    let lost = end_of(&events);
    let pid = std::process::id();
    let cause = Cause::Closed;
    let expected = LostRank { rank: Some(2), host: None, pid, cause, progress: Some(12_340) };
    assert_eq!(lost, expected);
    assert_eq!(coordinator.status().lost, Some(expected.clone()));
    drop(links.pop());
    assert!(coordinator.settled().lost == Some(expected), "the first counts");
}

#[test]
fn the_signal_of_a_reaped_process_is_reported() {
    let Group { coordinator, mut links } = group(2, SILENCE);
    let events = watched(&links[0]);
    drop(links.pop());
    coordinator.reaped(1, std::process::id(), Cause::Killed { signal: 9 });
    assert_eq!(end_of(&events).cause, Cause::Killed { signal: 9 });
}

#[test]
fn an_orderly_leave_is_no_loss() {
    let Group { coordinator, links } = group(3, SILENCE);
    let events = watched(&links[0]);
    links[1].leave();
    coordinator.reaped(1, std::process::id(), Cause::Exited { code: 130 });
    links[2].leave();
    assert_eq!(coordinator.settled().lost, None);
    assert!(events.try_recv().is_err());
    links[0].leave();
    assert!(events.recv_timeout(LONG).is_err());
    assert_eq!(coordinator.settled().lost, None);
}

#[test]
fn a_failure_carries_code_and_message() {
    let Group { coordinator, links } = group(3, SILENCE);
    let events = [watched(&links[0]), watched(&links[2])];
    links[1].fail(4, "no memory for the photographs");
    for events in events {
        let text = end_of(&events).to_string();
        assert!(text.starts_with("rank 1 (pid ") && text.contains("failed with code 4"), "{text}");
        assert!(text.ends_with(": no memory for the photographs"), "{text}");
    }
    coordinator.reaped(1, std::process::id(), Cause::Exited { code: 4 });
    let cause = coordinator.settled().lost.unwrap().cause;
    assert!(matches!(cause, Cause::Failed { code: 4, .. }), "{cause:?}");
}

#[test]
fn a_silent_rank_is_lost_and_is_notified_itself() {
    // This is shorter than the interval of heartbeats.
    let Group { coordinator, links } = group(2, HEARTBEAT / 10);
    let events = [watched(&links[0]), watched(&links[1])].map(|events| end_of(&events));
    assert_eq!(events[0], events[1]);
    assert!(matches!(events[0].cause, Cause::Silent { .. }), "{}", events[0]);
    assert_eq!(coordinator.status().lost.as_ref(), Some(&events[0]));
}

#[test]
fn ranks_with_heartbeats_are_not_silent() {
    let silence = HEARTBEAT * 4;
    let Group { coordinator, links } = group(3, silence);
    thread::sleep(silence + HEARTBEAT);
    assert_eq!(coordinator.settled().lost, None);
    links.iter().for_each(Link::leave);
}

#[test]
fn the_loss_of_the_coordinator_is_reported() {
    let Group { mut coordinator, links } = group(2, SILENCE);
    let events = watched(&links[0]);
    // End only the connection. A coordinator that ends in order sends `Closing`.
    drop(watched(&links[1]));
    links[0].stream.shutdown(Shutdown::Read).unwrap();
    let lost = end_of(&events);
    assert_eq!((lost.rank, lost.cause), (None, Cause::Closed));
    coordinator.finish(Duration::ZERO);
}

#[test]
fn ranks_continue_after_an_orderly_end_of_the_coordinator() {
    let Group { mut coordinator, links } = group(2, SILENCE);
    let events = watched(&links[0]);
    coordinator.finish(Duration::ZERO);
    assert!(events.recv_timeout(LONG).is_err(), "the watch ends without an event");
    links.iter().for_each(Link::leave);
}
