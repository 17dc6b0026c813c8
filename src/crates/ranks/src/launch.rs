//! Rank of this process, from the environment of its launcher.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

pub use crate::token::Token;

/// One process of several that work together, and where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its number, below `world`. Rank 0 leads.
    pub rank: u32,
    /// Number of ranks, at least 2.
    pub world: u32,
    /// Number of ranks on its host, this one among them, where the launcher says so. They share the host's processor.
    pub local_world: Option<u32>,
    /// Its number among those, where the launcher says so.
    pub local_rank: Option<u32>,
    /// Meeting place of the ranks.
    pub meeting: Meeting,
    /// The secret of the run, if the environment has one. Otherwise [`join`](crate::join::join) takes one that
    /// follows from the user and the run.
    pub token: Option<Token>,
}

/// Meeting place of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The supervisor that started them holds the coordinator.
    Supervisor {
        /// Its address.
        address: SocketAddr,
    },
    /// Rank 0 holds the coordinator, at the first port that it can have; the others try all of them.
    Hosts {
        /// Name or address of rank 0's host.
        host: String,
        /// The ports in the order of trial.
        ports: Vec<u16>,
        /// Name of the run, by which its ranks know the right coordinator.
        run: String,
    },
}

/// A broken environment. Each error names the variable and its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum LaunchError {
    #[error(
        "the environment variable {name} is `{value}`: a whole number from {least} to {most} is \
         needed"
    )]
    Number { name: &'static str, value: String, least: u32, most: u32 },
    #[error(
        "the environment variable {name} is {rank}, but there are {world} ranks ({of_world}), \
         counted from 0"
    )]
    Outside { name: &'static str, rank: u32, of_world: &'static str, world: u32 },
    /// A launcher set one variable without another one that belongs to it.
    #[error(
        "the environment variable {name} is `{value}`, but {missing} is not set: set it, or unset \
         {name} to run as one process"
    )]
    Half { name: &'static str, value: String, missing: &'static str },
    #[error("the environment variable {name}: {source}")]
    Nodes { name: &'static str, source: NodeListError },
    #[error("the environment variable {name} is `{value}`: {form} is needed")]
    Address { name: &'static str, value: String, form: &'static str },
    /// No secret. Its value is not shown.
    #[error(
        "the environment variable {name} has {letters} characters: 32 hexadecimal digits are \
         needed, as `openssl rand -hex 16` prints them"
    )]
    Secret { name: &'static str, letters: usize },
    /// The ranks are on several hosts and nothing says where they meet.
    #[error(
        "{name} is {here}, of {world} ranks in all. For ranks on several hosts, set SPLAT_RENDEZVOUS=HOST:PORT with the \
         host of rank 0 and a free port"
    )]
    NoPlace { name: &'static str, here: u32, world: u32 },
}

/// Reads the environment: which rank of how many, and where they meet. None: this process works alone.
///
/// The first of these that is there counts:
///
/// | launcher | variables |
/// |---|---|
/// | our supervisor | `SPLAT_RANK`, `SPLAT_WORLD`, `SPLAT_COORDINATOR`, `SPLAT_TOKEN` |
/// | by hand | `SPLAT_RANK`, `SPLAT_WORLD`, `SPLAT_RENDEZVOUS` |
/// | torchrun | `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` |
/// | Open MPI | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` |
/// | SLURM's `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_STEP_NODELIST` |
/// | PMI (MPICH, Intel MPI) | `PMI_RANK`, `PMI_SIZE` |
///
/// Open MPI comes before SLURM: its daemons are tasks of SLURM, whose variables its ranks inherit.
/// `SPLAT_RENDEZVOUS=HOST:PORT` names the place for all launchers but the supervisor, `SPLAT_TOKEN` (32 hexadecimal
/// digits) the secret. The ranks of this host are counted by `SPLAT_LOCAL_WORLD`, `LOCAL_WORLD_SIZE`,
/// `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_STEP_TASKS_PER_NODE` (where it is the same for all hosts, else
/// `SLURM_NTASKS_PER_NODE`) or `MPI_LOCALNRANKS`, each with its launcher's other variables. A rank's number among them
/// is in `SPLAT_LOCAL_RANK`, `LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_RANK`, `SLURM_LOCALID` or `MPI_LOCALRANKID`.
///
/// An error where a variable is broken or missing beside those that belong to it.
pub fn detect(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launch>, LaunchError> {
    let variables = Variables { env, parent: parent_id() };
    for launcher in [supervisor, torchrun, open_mpi, slurm, pmi] {
        match launcher(&variables)? {
            Role::Unknown => {}
            Role::Alone => return Ok(None),
            Role::Rank(launch) => return Ok(Some(launch)),
        }
    }
    Ok(None)
}

fn parent_id() -> u32 {
    #[cfg(unix)]
    return std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    return 0;
}

/// Ports that rank 0 tries, one after the other.
const TRIED_PORTS: u16 = 16;

/// First of the ports for runs whose launcher names none.
const FIRST_PORT: u16 = 20_000;

/// Number of those ports.
const PORTS: u16 = 20_000;

/// Role of this process by the variables of one launcher.
enum Role {
    /// Nothing: it may be another launcher.
    Unknown,
    /// The only process of its run.
    Alone,
    /// One of several.
    Rank(Launch),
}

/// The environment.
struct Variables<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Number of the parent process: on one host it is the same for all ranks that one launcher started.
    parent: u32,
}

/// The variables by which a launcher tells rank and world, and the ranks of this host.
struct Names {
    rank: &'static str,
    world: &'static str,
    local_world: &'static str,
    local_rank: &'static str,
}

/// A rank before its place is known.
struct Numbers {
    rank: u32,
    world: u32,
    local_world: Option<u32>,
    local_rank: Option<u32>,
}

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    fn number(
        &self,
        name: &'static str,
        least: u32,
        most: u32,
    ) -> Result<Option<u32>, LaunchError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.trim().parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(LaunchError::Number { name, value, least, most }),
        }
    }

    /// None where neither rank nor world is there.
    fn numbers(&self, names: &Names) -> Result<Option<Numbers>, LaunchError> {
        let rank = self.number(names.rank, 0, u32::MAX)?;
        let world = self.number(names.world, 1, u32::MAX)?;
        let half = |name, value: u32, missing| {
            Err(LaunchError::Half { name, value: value.to_string(), missing })
        };
        let (rank, world) = match (rank, world) {
            (None, None) => return Ok(None),
            (Some(rank), None) => return half(names.rank, rank, names.world),
            (None, Some(world)) => return half(names.world, world, names.rank),
            (Some(rank), Some(world)) => (rank, world),
        };
        if rank >= world {
            let (name, of_world) = (names.rank, names.world);
            return Err(LaunchError::Outside { name, rank, of_world, world });
        }
        let local_world = self.number(names.local_world, 1, u32::MAX)?;
        let local_rank = self.number(names.local_rank, 0, u32::MAX)?;
        Ok(Some(Numbers { rank, world, local_world, local_rank }))
    }

    fn token(&self) -> Result<Option<Token>, LaunchError> {
        let name = "SPLAT_TOKEN";
        let Some(text) = self.get(name) else { return Ok(None) };
        let letters = text.chars().count();
        Token::from_hex(&text).map(Some).ok_or(LaunchError::Secret { name, letters })
    }

    /// The place that the user names.
    fn rendezvous(&self) -> Result<Option<Meeting>, LaunchError> {
        let name = "SPLAT_RENDEZVOUS";
        let Some(value) = self.get(name) else { return Ok(None) };
        let place = value.rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            // An address of version 6 stands in brackets.
            let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host = inner.unwrap_or(host);
            let is_name = !host.is_empty() && (inner.is_some() || !host.contains(':'));
            is_name.then(|| (host.to_owned(), port))
        });
        match place {
            Some((host, port)) => Ok(Some(Meeting::Hosts { host, ports: vec![port], run: value })),
            None => Err(LaunchError::Address { name, value, form: "HOST:PORT" }),
        }
    }

    /// A rank at the user's place, or at this one.
    fn launch(
        &self,
        numbers: &Numbers,
        place: impl FnOnce() -> Result<Meeting, LaunchError>,
    ) -> Result<Role, LaunchError> {
        let &Numbers { rank, world, local_world, local_rank } = numbers;
        if world == 1 {
            return Ok(Role::Alone);
        }
        let meeting = self.rendezvous()?.map_or_else(place, Ok)?;
        // A launcher may tell the room of a host, where there are fewer ranks.
        let local_world = local_world.map(|here| here.min(world));
        let token = self.token()?;
        Ok(Role::Rank(Launch { rank, world, local_world, local_rank, meeting, token }))
    }

    /// A place on this host for a run that a variable or the parent process names.
    fn place_here(&self, launcher: &str, ids: &[&str]) -> Meeting {
        let id = ids.iter().find_map(|name| self.get(name));
        let run = format!("{launcher} {}", id.unwrap_or_else(|| format!("of {}", self.parent)));
        Meeting::Hosts { host: "127.0.0.1".to_owned(), ports: ports_of(&run), run }
    }

    /// Refuses ranks on several hosts where no launcher says where they meet.
    fn check_one_host(&self, name: &'static str, numbers: &Numbers) -> Result<(), LaunchError> {
        let world = numbers.world;
        match numbers.local_world {
            Some(here) if here < world => Err(LaunchError::NoPlace { name, here, world }),
            _ => Ok(()),
        }
    }

    /// The tasks of a SLURM step on each host, where there are as many on all: `4` or `4(x2)`, not `4(x2),3`.
    fn equal_tasks(&self) -> Option<u32> {
        let text = self.get("SLURM_STEP_TASKS_PER_NODE")?;
        let tasks = match text.split_once("(x") {
            Some((tasks, hosts)) => {
                hosts.strip_suffix(')')?.parse::<u32>().ok()?;
                tasks
            }
            None => text.as_str(),
        };
        tasks.parse().ok().filter(|tasks| *tasks > 0)
    }
}

/// Our own supervisor; or by hand, with a place.
fn supervisor(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let (rank, world, coordinator) = ("SPLAT_RANK", "SPLAT_WORLD", "SPLAT_COORDINATOR");
    let (local_world, local_rank) = ("SPLAT_LOCAL_WORLD", "SPLAT_LOCAL_RANK");
    let names = Names { rank, world, local_world, local_rank };
    let Some(numbers) = variables.numbers(&names)? else { return Ok(Role::Unknown) };
    let half = |missing| LaunchError::Half { name: rank, value: numbers.rank.to_string(), missing };
    let Some(value) = variables.get(coordinator) else {
        return variables.launch(&numbers, || Err(half(coordinator)));
    };
    let Numbers { rank, world, local_world, local_rank } = numbers;
    if world == 1 {
        return Ok(Role::Alone);
    }
    let address: SocketAddr = match value.parse() {
        Ok(address) => address,
        Err(_) => {
            let form = "an address and a port like 127.0.0.1:4000";
            return Err(LaunchError::Address { name: coordinator, value, form });
        }
    };
    let token = Some(variables.token()?.ok_or_else(|| half("SPLAT_TOKEN"))?);
    // The supervisor's ranks are all on its host.
    let local_world = Some(local_world.unwrap_or(world).min(world));
    let meeting = Meeting::Supervisor { address };
    let local_rank = Some(local_rank.unwrap_or(rank));
    Ok(Role::Rank(Launch { rank, world, local_world, local_rank, meeting, token }))
}

/// `torchrun`, and whatever sets the same variables.
fn torchrun(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let (rank, world, local_world) = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE");
    let names = Names { rank, world, local_world, local_rank: "LOCAL_RANK" };
    let Some(numbers) = variables.numbers(&names)? else { return Ok(Role::Unknown) };
    variables.launch(&numbers, || {
        let half =
            |missing| LaunchError::Half { name: rank, value: numbers.rank.to_string(), missing };
        let (address, port) = ("MASTER_ADDR", "MASTER_PORT");
        let host = variables.get(address).ok_or_else(|| half(address))?;
        if host.trim().is_empty() {
            let form = "the name of rank 0's host";
            return Err(LaunchError::Address { name: address, value: host, form });
        }
        let most = u32::from(u16::MAX - TRIED_PORTS);
        let port = variables.number(port, 1, most)?.ok_or_else(|| half(port))?;
        let id = variables.get("TORCHELASTIC_RUN_ID").unwrap_or_default();
        // The port is the agent's own; ours come behind it.
        let first = u16::try_from(port).unwrap_or(u16::MAX - TRIED_PORTS) + 1;
        let run = format!("torchrun {port} {id}");
        Ok(Meeting::Hosts { host, ports: from_port(first), run })
    })
}

/// SLURM's `srun`. A batch script is one process, however many tasks its job may start.
fn slurm(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let step = "SLURM_STEP_ID";
    let of_step = "SLURM_STEP_NUM_TASKS";
    let is_in_step = variables.get(step).is_some();
    let world = match variables.get(of_step) {
        Some(_) => of_step,
        None if is_in_step => "SLURM_NTASKS",
        None => return Ok(Role::Unknown),
    };
    if variables.number(world, 1, u32::MAX)?.is_none_or(|tasks| tasks == 1) {
        return Ok(Role::Unknown);
    }
    let (local_world, local_rank) = ("SLURM_NTASKS_PER_NODE", "SLURM_LOCALID");
    let names = Names { rank: "SLURM_PROCID", world, local_world, local_rank };
    let Some(mut numbers) = variables.numbers(&names)? else { return Ok(Role::Unknown) };
    // The other one is what the job was asked for; a step may have fewer.
    numbers.local_world = variables.equal_tasks().or(numbers.local_world);
    variables.launch(&numbers, || {
        let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];
        let found = lists.into_iter().find_map(|name| Some((name, variables.get(name)?)));
        let Some((name, list)) = found else {
            let value = numbers.rank.to_string();
            return Err(LaunchError::Half { name: "SLURM_PROCID", value, missing: lists[0] });
        };
        let host = first_host(&list).map_err(|source| LaunchError::Nodes { name, source })?;
        let [job, step] =
            ["SLURM_JOB_ID", step].map(|name| variables.get(name).unwrap_or_default());
        let run = format!("slurm {job}.{step}");
        Ok(Meeting::Hosts { host, ports: ports_of(&run), run })
    })
}

/// Open MPI's `mpirun`.
fn open_mpi(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let local_world = "OMPI_COMM_WORLD_LOCAL_SIZE";
    let local_rank = "OMPI_COMM_WORLD_LOCAL_RANK";
    let (rank, world) = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    let names = Names { rank, world, local_world, local_rank };
    let Some(numbers) = variables.numbers(&names)? else { return Ok(Role::Unknown) };
    variables.launch(&numbers, || {
        variables.check_one_host(local_world, &numbers)?;
        Ok(variables.place_here("mpi", &["OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"]))
    })
}

/// PMI, the interface of MPICH and Intel MPI.
fn pmi(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let local_world = "MPI_LOCALNRANKS";
    let local_rank = "MPI_LOCALRANKID";
    let names = Names { rank: "PMI_RANK", world: "PMI_SIZE", local_world, local_rank };
    let Some(numbers) = variables.numbers(&names)? else { return Ok(Role::Unknown) };
    variables.launch(&numbers, || {
        variables.check_one_host(local_world, &numbers)?;
        Ok(variables.place_here("pmi", &["PMI_JOBID"]))
    })
}

/// The ports of a run, by its name: the same on every host.
fn ports_of(run: &str) -> Vec<u16> {
    // FNV-1a, for the standard library's hashes may change between versions.
    let hash = run.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    from_port(FIRST_PORT + u16::try_from(hash % u64::from(PORTS)).unwrap_or(0))
}

fn from_port(first: u16) -> Vec<u16> {
    (first..=first + (TRIED_PORTS - 1)).collect()
}

// Lists of hosts as SLURM writes them: `node[01-04,07],x3`.

/// An error of a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NodeListError {
    #[error("`{list}` names no host in its place {place}")]
    Empty {
        list: String,
        /// The host that is missing, counted from 1.
        place: usize,
    },
    #[error("`{list}` has a bracket within a bracket")]
    Nested { list: String },
    #[error("`{list}` has a bracket without its partner")]
    Unbalanced { list: String },
    #[error("`{list}` has `{found}` in a bracket where a number or a range like 01-04 should be")]
    Range { list: String, found: String },
}

/// The first host of a list, by the numbers as they are written: `node[01-04]` begins with `node01`.
///
/// The whole list must be well formed, for a list that was cut may have lost its first host, too.
pub fn first_host(list: &str) -> Result<String, NodeListError> {
    let list_owned = || list.to_owned();
    let mut first = None;
    let mut place = 0;
    let mut rest = list;
    loop {
        place += 1;
        let mut host = String::new();
        let mut end = rest.len();
        while let Some(at) = rest.find(['[', ']', ',']) {
            host.push_str(&rest[..at]);
            let behind = &rest[at + 1..];
            if rest[at..].starts_with(',') {
                end = at;
                break;
            }
            if rest[at..].starts_with(']') {
                return Err(NodeListError::Unbalanced { list: list_owned() });
            }
            let Some(close) = behind.find(['[', ']']) else {
                return Err(NodeListError::Unbalanced { list: list_owned() });
            };
            if behind[close..].starts_with('[') {
                return Err(NodeListError::Nested { list: list_owned() });
            }
            let ranges = &behind[..close];
            let lows: Option<Vec<_>> = ranges.split(',').map(low_of).collect();
            let Some(low) = lows.and_then(|lows| lows.first().copied()) else {
                return Err(NodeListError::Range { list: list_owned(), found: ranges.to_owned() });
            };
            host.push_str(low);
            rest = &behind[close + 1..];
            end = rest.len();
        }
        let is_last = end == rest.len();
        if is_last {
            host.push_str(rest);
        }
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(NodeListError::Empty { list: list_owned(), place });
        }
        let host = first.get_or_insert(host);
        if is_last {
            return Ok(host.clone());
        }
        rest = &rest[end + 1..];
    }
}

/// The first number of `7` or `01-04`.
fn low_of(range: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    (is_number(low) && is_number(high)).then_some(low)
}
