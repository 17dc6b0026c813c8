use std::net::TcpListener;

use super::*;
use crate::coordinator::{CoordinatorOptions, SILENCE};
use crate::join::{Joined, join};
use crate::launch::{Launch, Meeting, Token};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(30);

/// An event that a rank received.
#[derive(Clone, Debug, PartialEq)]
enum LinkEvent {
    Stop,
    End(LostRank),
}

/// A coordinator that none of the ranks holds, and its ranks.
struct Group {
    coordinator: Coordinator,
    links: Vec<Link>,
}

fn group(world: u32, silence: Duration) -> Group {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let options = CoordinatorOptions::of_supervisor(world, Token::of_tests(), LONG);
    let options = CoordinatorOptions { silence, ..options };
    let coordinator = Coordinator::start(listener, options).unwrap();
    let meeting = Meeting::Supervisor { address };
    let links = joined(world, &meeting).into_iter().map(|joined| joined.link).collect();
    Group { coordinator, links }
}

fn joined(world: u32, meeting: &Meeting) -> Vec<Joined> {
    let ranks = (0..world).map(|rank| {
        let meeting = meeting.clone();
        let launch = Launch::of_tests(rank, world, meeting, Some(Token::of_tests()));
        thread::spawn(move || join(&launch, &[], LONG).unwrap())
    });
    // All start before one is waited for.
    let ranks: Vec<_> = ranks.collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn watched(link: &Link) -> Receiver<LinkEvent> {
    let (sender, events) = channel();
    let ends = sender.clone();
    link.watch(
        move || sender.send(LinkEvent::Stop).unwrap(),
        move |lost| ends.send(LinkEvent::End(lost)).unwrap(),
    )
    .unwrap();
    events
}

fn end_of(events: &Receiver<LinkEvent>) -> LostRank {
    match events.recv_timeout(LONG).unwrap() {
        LinkEvent::End(lost) => lost,
        LinkEvent::Stop => panic!("a stop"),
    }
}

#[test]
fn a_stop_reaches_all_also_those_who_watch_later() {
    let Group { coordinator, links } = group(3, SILENCE);
    let early = watched(&links[0]);
    links[1].request_stop();
    assert_eq!(early.recv_timeout(LONG), Ok(LinkEvent::Stop));
    for link in &links[1..] {
        assert_eq!(watched(link).recv_timeout(LONG), Ok(LinkEvent::Stop));
    }
    // A second one is no news.
    coordinator.stop();
    links.iter().for_each(Link::leave);
    assert!(early.recv_timeout(LONG).is_err(), "the watch ends with the link");
}

#[test]
fn a_rank_that_closes_is_dead_and_the_first_one_is_told() {
    let Group { coordinator, mut links } = group(3, SILENCE);
    let events = watched(&links[0]);
    links[2].progress(12_340);
    // A beat must bring it.
    thread::sleep(BEAT * 3);
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
fn a_process_that_was_reaped_names_its_signal() {
    let Group { coordinator, mut links } = group(2, SILENCE);
    let events = watched(&links[0]);
    drop(links.pop());
    coordinator.reaped(1, std::process::id(), Cause::Killed { signal: 9 });
    assert_eq!(end_of(&events).cause, Cause::Killed { signal: 9 });
}

#[test]
fn an_orderly_leave_is_no_death() {
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
fn a_silent_rank_is_dead_and_hears_it_itself() {
    // Between its beats every rank is silent longer than this.
    let Group { coordinator, links } = group(2, BEAT / 10);
    let events = [watched(&links[0]), watched(&links[1])].map(|events| end_of(&events));
    assert_eq!(events[0], events[1]);
    assert!(matches!(events[0].cause, Cause::Silent { .. }), "{}", events[0]);
    assert_eq!(coordinator.status().lost.as_ref(), Some(&events[0]));
}

#[test]
fn ranks_that_beat_are_not_silent() {
    let silence = BEAT * 4;
    let Group { coordinator, links } = group(3, silence);
    thread::sleep(silence + BEAT);
    assert_eq!(coordinator.settled().lost, None);
    links.iter().for_each(Link::leave);
}

#[test]
fn a_coordinator_that_is_gone_is_told() {
    let Group { coordinator, links } = group(2, SILENCE);
    let events = watched(&links[0]);
    // Only the connection ends: a coordinator that ends would send a farewell.
    drop(watched(&links[1]));
    links[0].stream.shutdown(Shutdown::Read).unwrap();
    let lost = end_of(&events);
    assert_eq!((lost.rank, lost.cause), (None, Cause::Closed));
    coordinator.finish(Duration::ZERO);
}

#[test]
fn a_farewell_lets_ranks_go_on() {
    let Group { coordinator, links } = group(2, SILENCE);
    let events = watched(&links[0]);
    coordinator.finish(Duration::ZERO);
    assert!(events.recv_timeout(LONG).is_err(), "the watch ends without a word");
    links.iter().for_each(Link::leave);
}
