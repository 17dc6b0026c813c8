//! What every exchange does, and what only sockets do.

mod contract;
mod faults;
mod fuzz;
mod joining;
mod stream;
mod watched;

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use super::{Board, Exchange, ExchangeError, Mesh, Sockets};

const KEY: [u8; 16] = *b"sixteen letters.";

/// Runs each test on threads, on sockets, and on these with memory that is shared.
macro_rules! on_each_exchange {
    ($($name:ident),* $(,)?) => {
        mod on_threads {
            $(#[test]
            fn $name() {
                super::$name(crate::exchange::Threads::group);
            })*
        }
        mod on_boards {
            $(#[test]
            fn $name() {
                super::$name(crate::exchange::tests::boards);
            })*
        }
        mod on_sockets {
            $(#[test]
            fn $name() {
                super::$name(crate::exchange::tests::sockets);
            })*
        }
    };
}
use on_each_exchange;

/// What a mesh of so many ranks needs, by rank.
fn meshes(world: u32, patience: Duration) -> Vec<Mesh> {
    let listen = |_| TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners: Vec<_> = (0..world).map(listen).collect();
    let peers: Vec<SocketAddr> =
        listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let mesh = |(rank, listener)| Mesh { rank, listener, peers: peers.clone(), key: KEY, patience };
    (0..).zip(listeners).map(mesh).collect()
}

/// Connects all of these at once; by rank.
fn connected(meshes: Vec<Mesh>) -> Vec<Result<Sockets, ExchangeError>> {
    let connecting: Vec<_> =
        meshes.into_iter().map(|mesh| thread::spawn(|| Sockets::connect(mesh))).collect();
    connecting.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// A mesh of so many ranks.
fn sockets(world: u32) -> Vec<Sockets> {
    connected(meshes(world, Duration::from_secs(60))).into_iter().map(Result::unwrap).collect()
}

/// Sockets whose ranks share memory.
fn boards(world: u32) -> Vec<Board<Sockets>> {
    let joining: Vec<_> =
        sockets(world).into_iter().map(|rank| thread::spawn(|| Board::among(rank))).collect();
    let boards: Vec<_> = joining.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect();
    // Elsewhere they make do without.
    assert!(boards.iter().all(|board| board.is_shared() == cfg!(target_os = "linux")));
    boards
}

/// Calls on all members at once, each in a thread of its own, and keeps them until all are done: a member
/// that leaves early is lost to the others. Results by rank of the members.
fn on_all<E: Exchange, T: Send>(members: &mut [E], call: impl Fn(&mut E) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let calling: Vec<_> =
            members.iter_mut().map(|member| scope.spawn(|| call(member))).collect();
        calling.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

type AnyCall = fn(&mut dyn Exchange) -> Result<(), ExchangeError>;

/// One call of each kind in which this rank needs another one, unless it is rank 0 of a broadcast.
const CALLS: [AnyCall; 3] = [
    |member| {
        let parts = vec![vec![7]; member.world() as usize];
        member.all_to_all(parts).map(drop)
    },
    |member| member.all_gather(vec![8, 9]).map(drop),
    |member| {
        let bytes = (member.rank() == 0).then(|| vec![10, 11, 12]);
        member.broadcast(bytes).map(drop)
    },
];
