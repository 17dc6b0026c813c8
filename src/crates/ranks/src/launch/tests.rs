use super::*;

impl Launch {
    /// Returns a rank of a launcher that does not tell the ranks of its host.
    pub(crate) fn for_tests(
        rank: u32,
        world: u32,
        rendezvous: Rendezvous,
        token: Option<Token>,
    ) -> Self {
        Self { rank, world, local_world: None, local_rank: None, rendezvous, token }
    }
}

impl Token {
    pub(crate) fn for_tests() -> Self {
        Self::from_hex(&"5a".repeat(16)).unwrap()
    }
}

/// Detects the launcher in an environment of words `NAME=value`.
fn detected(words: &str) -> Result<Option<Launch>, LaunchError> {
    detect(&|name| {
        let mut words = words.split(' ');
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    })
}

fn launch(words: &str) -> Launch {
    detected(words).unwrap().unwrap()
}

/// Returns rank, world, ranks of this host, host, first port and number of ports.
fn numbers(words: &str) -> (u32, u32, Option<u32>, String, u16, usize) {
    let Launch { rank, world, local_world, rendezvous, .. } = launch(words);
    let Rendezvous::Hosts { host, ports, .. } = rendezvous else {
        panic!("{words}: {rendezvous:?}")
    };
    assert!(ports.windows(2).all(|two| two[1] == two[0] + 1), "{ports:?}");
    (rank, world, local_world, host, ports[0], ports.len())
}

fn run_of(words: &str) -> String {
    match launch(words).rendezvous {
        Rendezvous::Hosts { run, .. } => run,
        Rendezvous::Supervisor { .. } => panic!("{words}"),
    }
}

const OURS: &str = "SPLAT_RANK=1 SPLAT_WORLD=3 SPLAT_COORDINATOR=127.0.0.1:4000 \
                    SPLAT_TOKEN=00112233445566778899aabbccddeeff";
const TORCHRUN: &str = "RANK=5 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node3 MASTER_PORT=29500";
const SLURM: &str = "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS_PER_NODE=2 SLURM_JOB_ID=77 \
                     SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[03-04] SLURM_JOB_NODELIST=node[01-04]";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=prterun-a-12@1";
const PMI: &str = "PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=kvs_9";

#[test]
fn each_launcher_is_read() {
    let ours = launch(OURS);
    let address = "127.0.0.1:4000".parse().unwrap();
    assert_eq!((ours.rank, ours.world, ours.local_world), (1, 3, Some(3)));
    assert_eq!(ours.rendezvous, Rendezvous::Supervisor { address });
    assert_eq!(ours.token.unwrap().to_hex(), "00112233445566778899aabbccddeeff");

    let of = |rank, world, local, host: &str, port| (rank, world, local, host.to_owned(), port, 16);
    assert_eq!(numbers(TORCHRUN), of(5, 8, Some(4), "node3", 29_501));
    for (words, rank, world, local, host) in [
        (SLURM, 2, 4, Some(2), "node03"),
        (OPEN_MPI, 1, 2, Some(2), "127.0.0.1"),
        (PMI, 3, 4, None, "127.0.0.1"),
    ] {
        let found = numbers(words);
        assert!((20_000..40_000).contains(&found.4), "{found:?}");
        assert_eq!(found, of(rank, world, local, host, found.4));
    }
    let of_job = SLURM.replace("SLURM_STEP_NODELIST", "X");
    assert_eq!(numbers(&of_job).3, "node01");
    let of_tasks = SLURM.replace("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
    assert_eq!(numbers(&of_tasks), numbers(SLURM));
}

#[test]
fn the_number_of_ranks_of_this_host_is_read() {
    let there = |count: &str| format!("SPLAT_RENDEZVOUS=a:1 {count}");
    let by_hand = "SPLAT_RANK=1 SPLAT_WORLD=6";
    let slurm = |tasks| format!("{SLURM} SLURM_STEP_TASKS_PER_NODE={tasks}");
    for (words, expected) in [
        (format!("SPLAT_LOCAL_WORLD=2 {OURS}"), Some(2)),
        (there(by_hand), None),
        (there(&format!("{by_hand} SPLAT_LOCAL_WORLD=3")), Some(3)),
        (TORCHRUN.replace("LOCAL_WORLD_SIZE", "X"), None),
        (there(&OPEN_MPI.replace("WORLD_SIZE=2", "WORLD_SIZE=4")), Some(2)),
        (format!("{PMI} MPI_LOCALNRANKS=4"), Some(4)),
        (slurm("3"), Some(3)),
        (slurm("1(x4)"), Some(1)),
        // The host of this task is unknown.
        (slurm("3,1"), Some(2)),
        (slurm("1(x2),2"), Some(2)),
        (slurm("0"), Some(2)),
        (slurm("").replace("SLURM_NTASKS_PER_NODE", "X"), None),
        // The capacity of a host exceeds the number of ranks.
        (SLURM.replace("PER_NODE=2", "PER_NODE=64"), Some(4)),
    ] {
        assert_eq!(launch(&words).local_world, expected, "{words}");
    }
}

#[test]
fn the_number_of_a_rank_on_its_host_is_read() {
    for (words, expected) in [
        (OURS.to_owned(), Some(1)),
        (format!("{OURS} SPLAT_LOCAL_RANK=0"), Some(0)),
        (TORCHRUN.to_owned(), None),
        (format!("{TORCHRUN} LOCAL_RANK=3"), Some(3)),
        (format!("{SLURM} SLURM_LOCALID=1"), Some(1)),
        (format!("{OPEN_MPI} OMPI_COMM_WORLD_LOCAL_RANK=1"), Some(1)),
        (format!("{PMI} MPI_LOCALRANKID=2"), Some(2)),
    ] {
        assert_eq!(launch(&words).local_rank, expected, "{words}");
    }
    assert!(detected(&format!("{TORCHRUN} LOCAL_RANK=x")).is_err());
}

#[test]
fn the_first_launcher_counts() {
    let order = [OURS, TORCHRUN, OPEN_MPI, SLURM, PMI];
    for (at, words) in order.iter().enumerate() {
        // The order in the environment must not matter.
        let mut all: Vec<_> = order[at..].to_vec();
        all.reverse();
        let token = |launch: Launch| Launch { token: None, ..launch };
        assert_eq!(token(launch(&all.join(" "))), token(launch(words)), "{words}");
    }
}

#[test]
fn a_process_without_launcher_or_others_works_alone() {
    for words in [
        "",
        "MASTER_ADDR=a MASTER_PORT=x LOCAL_RANK=0",
        "SPLAT_RENDEZVOUS=a:1 SPLAT_TOKEN=short",
        "RANK=0 WORLD_SIZE=1",
        "SPLAT_RANK=0 SPLAT_WORLD=1",
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
        "PMI_RANK=0 PMI_SIZE=1",
        "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1",
        // A batch script is no task of its job.
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=a",
    ] {
        assert_eq!(detected(words), Ok(None), "{words}");
    }
    let inside = format!("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 {PMI}");
    assert_eq!(launch(&inside), launch(PMI));
}

#[test]
fn broken_variables_are_named_with_their_value() {
    for (words, parts) in [
        ("RANK=x WORLD_SIZE=2", "RANK|`x`"),
        ("RANK= WORLD_SIZE=2", "RANK|``"),
        ("RANK=-1 WORLD_SIZE=2", "RANK|`-1`"),
        ("RANK=0 WORLD_SIZE=0", "WORLD_SIZE|`0`|1 to"),
        ("RANK=0 WORLD_SIZE=2.5", "WORLD_SIZE|`2.5`"),
        ("RANK=2 WORLD_SIZE=2", "RANK is 2|2 ranks (WORLD_SIZE)|from 0"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=a", "LOCAL_WORLD_SIZE|`a`|1 to"),
        ("RANK=1", "RANK is `1`|WORLD_SIZE is not set"),
        ("WORLD_SIZE=4", "WORLD_SIZE is `4`|RANK is not set"),
        ("RANK=0 WORLD_SIZE=2", "RANK is `0`|MASTER_ADDR is not set"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "RANK is `0`|MASTER_PORT is not set"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR= MASTER_PORT=1", "MASTER_ADDR|``"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65530", "MASTER_PORT|`65530`|65519"),
        ("SPLAT_RANK=1", "SPLAT_RANK is `1`|SPLAT_WORLD"),
        ("SPLAT_RANK=3 SPLAT_WORLD=3", "SPLAT_RANK is 3|3 ranks"),
        ("SPLAT_RANK=1 SPLAT_WORLD=2", "SPLAT_COORDINATOR is not set"),
        ("SPLAT_RANK=1 SPLAT_WORLD=2 SPLAT_COORDINATOR=here", "SPLAT_COORDINATOR|`here`"),
        ("SPLAT_RANK=1 SPLAT_WORLD=2 SPLAT_COORDINATOR=127.0.0.1:1", "SPLAT_TOKEN is not set"),
        (&OURS.replace("eeff", "eef"), "SPLAT_TOKEN has 31 characters|32"),
        (&format!("{TORCHRUN} SPLAT_TOKEN=secret"), "SPLAT_TOKEN has 6 characters"),
        (&SLURM.replace("[03-04]", "[03-04"), "SLURM_STEP_NODELIST|`node[03-04`|partner"),
        (&SLURM.replace("NODELIST", "X"), "SLURM_PROCID is `2`|SLURM_STEP_NODELIST"),
        (&SLURM.replace("TASKS=4", "TASKS=four"), "SLURM_STEP_NUM_TASKS|`four`"),
        ("SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_TASKS is `4`|SLURM_PROCID"),
        ("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"),
        (
            &OPEN_MPI.replace("WORLD_SIZE=2", "WORLD_SIZE=4"),
            "LOCAL_SIZE is 2|4 ranks|SPLAT_RENDEZVOUS",
        ),
        ("PMI_SIZE=2", "PMI_RANK is not set"),
        (&format!("{PMI} SPLAT_RENDEZVOUS=a"), "SPLAT_RENDEZVOUS|`a`|HOST:PORT"),
        (&format!("{PMI} SPLAT_RENDEZVOUS=:9"), "`:9`"),
        (&format!("{PMI} SPLAT_RENDEZVOUS=a:0"), "`a:0`"),
        (&format!("{PMI} SPLAT_RENDEZVOUS=::1"), "`::1`"),
    ] {
        let error = detected(words).unwrap_err().to_string();
        for part in parts.split('|') {
            assert!(error.contains(part), "{words}: {part}: {error}");
        }
        assert!(!error.contains("secret") && !error.contains("00112233"), "{error}");
    }
}

#[test]
fn the_users_address_overrides_all_launchers_but_the_supervisor() {
    for words in [TORCHRUN, SLURM, OPEN_MPI, PMI, "SPLAT_RANK=1 SPLAT_WORLD=2"] {
        let (.., host, port, ports) = numbers(&format!("SPLAT_RENDEZVOUS=gpu7:5000 {words}"));
        assert_eq!((host.as_str(), port, ports), ("gpu7", 5000, 1), "{words}");
    }
    let far = format!("SPLAT_RENDEZVOUS=[fe80::1]:5000 {}", OPEN_MPI.replace("SIZE=2", "SIZE=4"));
    assert_eq!(numbers(&far).3, "fe80::1");
    assert_eq!(launch(&format!("SPLAT_RENDEZVOUS=gpu7:5000 {OURS}")), launch(OURS));
}

#[test]
fn ranks_of_one_run_find_the_same_address() {
    for (words, rank) in [(TORCHRUN, "RANK=5"), (SLURM, "PROCID=2"), (PMI, "PMI_RANK=3")] {
        let name = rank.split('=').next().unwrap();
        let other = words.replace(rank, &format!("{name}=0"));
        assert_eq!(launch(words).rendezvous, launch(&other).rendezvous, "{words}");
        assert_ne!(launch(words).rank, launch(&other).rank);
    }
    // A run without a name is named by the process that started its ranks.
    let nameless = PMI.replace("PMI_JOBID", "X");
    assert_eq!(run_of(&nameless), format!("pmi of {}", parent_id()));
}

#[test]
fn simultaneous_runs_have_different_names() {
    for (words, from, to) in [
        (SLURM, "JOB_ID=77", "JOB_ID=78"),
        (SLURM, "STEP_ID=0", "STEP_ID=1"),
        (PMI, "kvs_9", "kvs_8"),
        (OPEN_MPI, "a-12", "a-13"),
        (TORCHRUN, "29500", "29501"),
    ] {
        let other = words.replace(from, to);
        assert_ne!(run_of(words), run_of(&other));
        assert_ne!(numbers(words).4, numbers(&other).4, "{words}");
    }
    assert_ne!(run_of(TORCHRUN), run_of(&format!("{TORCHRUN} TORCHELASTIC_RUN_ID=b")));
    // The ports must not depend on the compiler.
    assert_eq!(numbers(SLURM).4, 36_024);
}

#[test]
fn the_first_host_is_found() {
    for (list, first) in [
        ("a", "a"),
        ("a,b", "a"),
        ("node[01-04,07],x3", "node01"),
        ("x3,node[01-04,07]", "x3"),
        ("node[7,1-3]", "node7"),
        ("node[007-100]", "node007"),
        ("gpu-a[1-2]b[3-4]", "gpu-a1b3"),
        ("rack[2]-n[09-10].local,b", "rack2-n09.local"),
        ("n[1]", "n1"),
        ("[5-6]", "5"),
        ("10.0.0.1,10.0.0.2", "10.0.0.1"),
    ] {
        assert_eq!(first_host(list).as_deref(), Ok(first), "{list}");
    }
}

#[test]
fn a_broken_list_is_refused_with_its_text() {
    let list = |list: &str| list.to_owned();
    for broken in ["", ",a", "a,", "a,,b", " ", "a b", "a,[1-2],,"] {
        let error = first_host(broken).unwrap_err();
        assert!(matches!(error, NodeListError::Empty { .. }), "{broken}: {error}");
    }
    for broken in ["a[1", "a]", "a[1-2]]", "a[1-2],b[", "a,b]c", "a[1,2"] {
        assert_eq!(first_host(broken), Err(NodeListError::Unbalanced { list: list(broken) }));
    }
    for broken in ["a[[1]]", "a[1[2]]", "b,a[1,[2]]"] {
        assert_eq!(first_host(broken), Err(NodeListError::Nested { list: list(broken) }));
    }
    for (broken, found) in
        [("a[]", ""), ("a[x]", "x"), ("a[1-]", "1-"), ("b,a[1,]", "1,"), ("a[1-2-3]", "1-2-3")]
    {
        let error = NodeListError::Range { list: list(broken), found: list(found) };
        assert_eq!(first_host(broken), Err(error.clone()));
        assert!(error.to_string().contains(&format!("`{broken}`")), "{error}");
    }
    let error = first_host("a,,b").unwrap_err().to_string();
    assert_eq!(error, "`a,,b` names no host in its place 2");
}
