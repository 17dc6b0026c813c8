//! Rank of this process, from the environment of its launcher.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

pub use crate::token::Token;

/// Rank of this process and address of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of the rank, below `world`. Rank 0 leads.
    pub rank: u32,
    /// Number of ranks, at least 2.
    pub world: u32,
    /// Number of ranks on this host, which share its processor. None if the launcher does not tell.
    pub local_world: Option<u32>,
    /// Number of the rank among those of this host. None if the launcher does not tell.
    pub local_rank: Option<u32>,
    /// Address of the coordinator.
    pub rendezvous: Rendezvous,
    /// Secret of the run, if the environment has one. Otherwise [`join`](crate::join::join) derives it from the user's
    /// secret and the run.
    pub token: Option<Token>,
}

/// Address of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// The coordinator runs in the supervisor that started the ranks.
    Supervisor {
        /// Address of the coordinator.
        address: SocketAddr,
    },
    /// The coordinator runs in rank 0, at the first free port. The others try all ports.
    Hosts {
        /// Name or address of rank 0's host.
        host: String,
        /// Ports in the order of trial.
        ports: Vec<u16>,
        /// Name of the run, by which ranks recognise the coordinator.
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
    OutOfRange { name: &'static str, rank: u32, of_world: &'static str, world: u32 },
    /// A launcher has set only some of its variables.
    #[error(
        "the environment variable {name} is `{value}`, but {missing} is not set: set it, or unset \
         {name} to run as one process"
    )]
    Incomplete { name: &'static str, value: String, missing: &'static str },
    #[error("the environment variable {name}: {source}")]
    Nodes { name: &'static str, source: NodeListError },
    #[error("the environment variable {name} is `{value}`: {form} is needed")]
    Address { name: &'static str, value: String, form: &'static str },
    /// Malformed secret. The value is not shown.
    #[error(
        "the environment variable {name} has {letters} characters: 32 hexadecimal digits are \
         needed, as `openssl rand -hex 16` prints them"
    )]
    Secret { name: &'static str, letters: usize },
    /// The ranks are on several hosts, and no variable names an address of the coordinator.
    #[error(
        "{name} is {here}, of {world} ranks in all. For ranks on several hosts, set SPLAT_RENDEZVOUS=HOST:PORT with the \
         host of rank 0 and a free port"
    )]
    NoRendezvous { name: &'static str, here: u32, world: u32 },
}

/// Reads rank, world and address of the coordinator from the environment. Returns `None` if this process works alone.
///
/// The first launcher whose variables are set counts:
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
/// Open MPI comes before SLURM, because its daemons are tasks of SLURM, whose variables its ranks inherit.
/// `SPLAT_RENDEZVOUS=HOST:PORT` is the address for all launchers but the supervisor, and `SPLAT_TOKEN` (32 hexadecimal
/// digits) the secret. The number of ranks of this host is in `SPLAT_LOCAL_WORLD`, `LOCAL_WORLD_SIZE`,
/// `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_STEP_TASKS_PER_NODE` (if it is equal for all hosts, else
/// `SLURM_NTASKS_PER_NODE`) or `MPI_LOCALNRANKS`, and the rank's number among them in `SPLAT_LOCAL_RANK`,
/// `LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_RANK`, `SLURM_LOCALID` or `MPI_LOCALRANKID`.
///
/// Returns an error if a variable is malformed, or if a launcher's variable is missing.
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

/// Number of ports that rank 0 tries.
const TRIED_PORTS: u16 = 16;

/// First port for runs whose launcher names none.
const FIRST_PORT: u16 = 20_000;

/// Number of ports for runs whose launcher names none.
const PORTS: u16 = 20_000;

/// Role of this process according to one launcher.
enum Role {
    /// The launcher's variables are not set.
    Unknown,
    /// The only process of its run.
    Alone,
    /// One of several processes.
    Rank(Launch),
}

/// The environment.
struct Variables<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Process number of the parent, which all ranks of a launcher on one host share.
    parent: u32,
}

/// Names of a launcher's variables.
struct Names {
    rank: &'static str,
    world: &'static str,
    local_world: &'static str,
    local_rank: &'static str,
}

/// Values of a launcher's variables.
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

    /// Reads a launcher's variables. Returns `None` if neither rank nor world is set.
    fn numbers(&self, names: &Names) -> Result<Option<Numbers>, LaunchError> {
        let rank = self.number(names.rank, 0, u32::MAX)?;
        let world = self.number(names.world, 1, u32::MAX)?;
        let half = |name, value: u32, missing| {
            Err(LaunchError::Incomplete { name, value: value.to_string(), missing })
        };
        let (rank, world) = match (rank, world) {
            (None, None) => return Ok(None),
            (Some(rank), None) => return half(names.rank, rank, names.world),
            (None, Some(world)) => return half(names.world, world, names.rank),
            (Some(rank), Some(world)) => (rank, world),
        };
        if rank >= world {
            let (name, of_world) = (names.rank, names.world);
            return Err(LaunchError::OutOfRange { name, rank, of_world, world });
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

    /// Returns the address that the user has set.
    fn user_rendezvous(&self) -> Result<Option<Rendezvous>, LaunchError> {
        let name = "SPLAT_RENDEZVOUS";
        let Some(value) = self.get(name) else { return Ok(None) };
        let place = value.rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            // An IPv6 address is in brackets.
            let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host = inner.unwrap_or(host);
            let is_name = !host.is_empty() && (inner.is_some() || !host.contains(':'));
            is_name.then(|| (host.to_owned(), port))
        });
        match place {
            Some((host, port)) => {
                Ok(Some(Rendezvous::Hosts { host, ports: vec![port], run: value }))
            }
            None => Err(LaunchError::Address { name, value, form: "HOST:PORT" }),
        }
    }

    /// Returns the role of a rank, with the user's address or else that of `default`.
    fn launch(
        &self,
        numbers: &Numbers,
        default: impl FnOnce() -> Result<Rendezvous, LaunchError>,
    ) -> Result<Role, LaunchError> {
        let &Numbers { rank, world, local_world, local_rank } = numbers;
        if world == 1 {
            return Ok(Role::Alone);
        }
        let rendezvous = self.user_rendezvous()?.map_or_else(default, Ok)?;
        // Some launchers give the capacity of a host instead.
        let local_world = local_world.map(|here| here.min(world));
        let token = self.token()?;
        Ok(Role::Rank(Launch { rank, world, local_world, local_rank, rendezvous, token }))
    }

    /// Returns the number of tasks of a SLURM step per host, if it is equal for all hosts: `4` or `4(x2)`, not
    /// `4(x2),3`.
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

/// Reads the variables of the supervisor, or those that a user sets.
fn supervisor(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let (rank, world, coordinator) = ("SPLAT_RANK", "SPLAT_WORLD", "SPLAT_COORDINATOR");
    let (local_world, local_rank) = ("SPLAT_LOCAL_WORLD", "SPLAT_LOCAL_RANK");
    let names = Names { rank, world, local_world, local_rank };
    let Some(numbers) = variables.numbers(&names)? else { return Ok(Role::Unknown) };
    let half =
        |missing| LaunchError::Incomplete { name: rank, value: numbers.rank.to_string(), missing };
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
    // All ranks of a supervisor are on its host.
    let local_world = Some(local_world.unwrap_or(world).min(world));
    let rendezvous = Rendezvous::Supervisor { address };
    let local_rank = Some(local_rank.unwrap_or(rank));
    Ok(Role::Rank(Launch { rank, world, local_world, local_rank, rendezvous, token }))
}

/// Reads the variables of `torchrun`.
fn torchrun(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let (rank, world, local_world) = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE");
    let names = Names { rank, world, local_world, local_rank: "LOCAL_RANK" };
    let Some(numbers) = variables.numbers(&names)? else { return Ok(Role::Unknown) };
    variables.launch(&numbers, || {
        let half = |missing| LaunchError::Incomplete {
            name: rank,
            value: numbers.rank.to_string(),
            missing,
        };
        let (address, port) = ("MASTER_ADDR", "MASTER_PORT");
        let host = variables.get(address).ok_or_else(|| half(address))?;
        if host.trim().is_empty() {
            let form = "the name of rank 0's host";
            return Err(LaunchError::Address { name: address, value: host, form });
        }
        let most = u32::from(u16::MAX - TRIED_PORTS);
        let port = variables.number(port, 1, most)?.ok_or_else(|| half(port))?;
        let id = variables.get("TORCHELASTIC_RUN_ID").unwrap_or_default();
        // The agent of torchrun listens at the port itself, so take the following ones.
        let first = u16::try_from(port).unwrap_or(u16::MAX - TRIED_PORTS) + 1;
        let run = format!("torchrun {port} {id}");
        Ok(Rendezvous::Hosts { host, ports: from_port(first), run })
    })
}

/// Reads the variables of SLURM's `srun`. A batch script itself is a single process.
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
    // `SLURM_NTASKS_PER_NODE` is that of the job. A step may have fewer.
    numbers.local_world = variables.equal_tasks().or(numbers.local_world);
    variables.launch(&numbers, || {
        let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];
        let found = lists.into_iter().find_map(|name| Some((name, variables.get(name)?)));
        let Some((name, list)) = found else {
            let value = numbers.rank.to_string();
            return Err(LaunchError::Incomplete { name: "SLURM_PROCID", value, missing: lists[0] });
        };
        let host = first_host(&list).map_err(|source| LaunchError::Nodes { name, source })?;
        let [job, step] =
            ["SLURM_JOB_ID", step].map(|name| variables.get(name).unwrap_or_default());
        let run = format!("slurm {job}.{step}");
        Ok(Rendezvous::Hosts { host, ports: ports_of(&run), run })
    })
}

/// Reads the variables of Open MPI's `mpirun`.
fn open_mpi(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let names = Names {
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    };
    on_one_host(variables, &names, "mpi", &["OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"])
}

/// Reads the variables of PMI, the interface of MPICH and Intel MPI.
fn pmi(variables: &Variables<'_>) -> Result<Role, LaunchError> {
    let (local_world, local_rank) = ("MPI_LOCALNRANKS", "MPI_LOCALRANKID");
    let names = Names { rank: "PMI_RANK", world: "PMI_SIZE", local_world, local_rank };
    on_one_host(variables, &names, "pmi", &["PMI_JOBID"])
}

/// Reads the variables of a launcher that tells no host. Without the user's address all ranks must be on this host. The
/// run is named by the first of the variables `ids`, or else by the parent process.
fn on_one_host(
    variables: &Variables<'_>,
    names: &Names,
    launcher: &str,
    ids: &[&str],
) -> Result<Role, LaunchError> {
    let Some(numbers) = variables.numbers(names)? else { return Ok(Role::Unknown) };
    variables.launch(&numbers, || {
        let (name, world) = (names.local_world, numbers.world);
        if let Some(here) = numbers.local_world.filter(|&here| here < world) {
            return Err(LaunchError::NoRendezvous { name, here, world });
        }
        let id = ids.iter().find_map(|name| variables.get(name));
        let id = id.unwrap_or_else(|| format!("of {}", variables.parent));
        let run = format!("{launcher} {id}");
        Ok(Rendezvous::Hosts { host: "127.0.0.1".to_owned(), ports: ports_of(&run), run })
    })
}

/// Derives the ports from the name of the run, equal on every host.
fn ports_of(run: &str) -> Vec<u16> {
    // FNV-1a, because hashes of the standard library may change between versions.
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
        /// Position of the missing host, from 1.
        place: usize,
    },
    #[error("`{list}` has a bracket within a bracket")]
    Nested { list: String },
    #[error("`{list}` has a bracket without its partner")]
    Unbalanced { list: String },
    #[error("`{list}` has `{found}` in a bracket where a number or a range like 01-04 should be")]
    Range { list: String, found: String },
}

/// Returns the first host of a list. Leading zeros are kept: `node[01-04]` begins with `node01`.
///
/// The whole list must be well formed, because a truncated list may lack its first host.
pub fn first_host(list: &str) -> Result<String, NodeListError> {
    let list_owned = || list.to_owned();
    let unbalanced = || NodeListError::Unbalanced { list: list_owned() };
    let check = |host: &str, place| match host.is_empty() || host.contains(char::is_whitespace) {
        true => Err(NodeListError::Empty { list: list_owned(), place }),
        false => Ok(()),
    };
    let mut hosts = Vec::new();
    let mut host = String::new();
    let mut rest = list;
    while let Some(at) = rest.find(['[', ']', ',']) {
        host.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if rest[at..].starts_with(',') {
            check(&host, hosts.len() + 1)?;
            hosts.push(std::mem::take(&mut host));
            rest = behind;
            continue;
        }
        if rest[at..].starts_with(']') {
            return Err(unbalanced());
        }
        let close = behind.find(['[', ']']).ok_or_else(unbalanced)?;
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
    }
    host.push_str(rest);
    check(&host, hosts.len() + 1)?;
    Ok(hosts.into_iter().next().unwrap_or(host))
}

/// Returns the first number of `7` or `01-04`.
fn low_of(range: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    (is_number(low) && is_number(high)).then_some(low)
}
