//! Why the environment does not say which rank this is.

use crate::node_list::NodeListError;

/// Why the environment does not say which rank this is. Each names the variable and its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A variable holds no number, or one that is out of range.
    #[error(
        "the environment variable {name} is `{value}`: a whole number from {least} to {most} is \
         needed"
    )]
    Number {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Smallest value.
        least: u32,
        /// Greatest value.
        most: u32,
    },
    /// The rank is not below the world.
    #[error(
        "the environment variable {name} is {rank}, but there are {world} ranks ({of_world}), \
         counted from 0"
    )]
    Outside {
        /// The variable with the rank.
        name: &'static str,
        /// The rank.
        rank: u32,
        /// The variable with the world.
        of_world: &'static str,
        /// Number of ranks.
        world: u32,
    },
    /// A launcher set one variable without another one that belongs to it.
    #[error(
        "the environment variable {name} is `{value}`, but {missing} is not set: set it, or unset \
         {name} to run as one process"
    )]
    Half {
        /// The variable that is set.
        name: &'static str,
        /// Its value.
        value: String,
        /// The one that is not.
        missing: &'static str,
    },
    /// A list of hosts cannot be read.
    #[error("the environment variable {name}: {source}")]
    Nodes {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        source: NodeListError,
    },
    /// No address and port.
    #[error("the environment variable {name} is `{value}`: {form} is needed")]
    Address {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should look like.
        form: &'static str,
    },
    /// No secret. Its value is not shown.
    #[error(
        "the environment variable {name} has {letters} characters: 32 hexadecimal digits are \
         needed, as `openssl rand -hex 16` prints them"
    )]
    Secret {
        /// The variable.
        name: &'static str,
        /// Its length.
        letters: usize,
    },
    /// The ranks are on several hosts and nothing says where they meet.
    #[error(
        "{name} is {here}, of {world} ranks in all. For ranks on several hosts, set SPLAT_RENDEZVOUS=HOST:PORT with the \
         host of rank 0 and a free port"
    )]
    NoPlace {
        /// The variable with the ranks of this host.
        name: &'static str,
        /// Ranks of this host.
        here: u32,
        /// Number of ranks.
        world: u32,
    },
}
