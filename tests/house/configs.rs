//! Configuration files and the code say the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser};
use splat::config::{
    Color, Compactness, Config, ConfigError, ConfigLayer, DensifyOptions, DeviceChoice, Layers,
    Offset, OptimizeOptions, StrategyName, TestList, Typed, normalize_args, preset_names,
    preset_text, reference_toml, resolve,
};
use splat::memory::{Bytes, Limit};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    config: Config,
}

fn parsed(words: &[&str]) -> (Config, ArgMatches) {
    let line = ["splat"].iter().chain(words).map(Into::into);
    let matches = Line::command().try_get_matches_from(normalize_args(line).args).unwrap();
    (Config::from_arg_matches(&matches).unwrap(), matches)
}

fn resolved(toml: &str, words: &[&str]) -> Result<Config, ConfigError> {
    let (flags, matches) = parsed(words);
    resolve(Layers {
        base: Some(ConfigLayer { origin: "base.toml", text: toml }),
        typed: Some(Typed { flags: &flags, matches: &matches }),
        ..Layers::default()
    })
}

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs")
}

fn of_preset(name: &str) -> Config {
    resolve(Layers { preset: Some(name), ..Layers::default() }).unwrap()
}

/// Resolves configurations that are refused with messages of these parts, separated by `|`.
fn assert_refused(cases: &[(&str, &[&str], &str)]) {
    for (toml, words, parts) in cases {
        let message = resolved(toml, words).unwrap_err().to_string();
        for part in parts.split('|') {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

/// (section, key) of each line `key = value`, commented out or not.
fn keys_of(text: &str) -> BTreeSet<(String, String)> {
    let mut section = String::new();
    let mut keys = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, _)) = line.split_once(" = ")
            && key.chars().all(|letter| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
            })
        {
            keys.insert((section.clone(), key.to_owned()));
        }
    }
    keys
}

#[test]
fn the_reference_file_is_what_the_code_prints() {
    let path = configs().join("reference.toml");
    let printed = reference_toml().unwrap();
    if std::env::var_os("SPLAT_UPDATE_CONFIGS").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == printed,
        "configs/reference.toml is out of date: SPLAT_UPDATE_CONFIGS=1 cargo test --test house configs"
    );
    assert_eq!(Config::from_toml("reference.toml", &printed).unwrap(), Config::default());
}

#[test]
fn every_file_in_configs_is_a_preset_and_can_be_used() {
    let files: BTreeSet<_> = std::fs::read_dir(configs())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let names: BTreeSet<_> = preset_names().map(str::to_owned).collect();
    assert_eq!(files, names);
    for name in preset_names() {
        of_preset(name);
        assert!(preset_text(name).unwrap().ends_with('\n'), "{name}");
    }
    let smoke = of_preset("smoke");
    assert_eq!((smoke.optimize.iterations, smoke.scene.resolution), (200, 8));
    assert_eq!(smoke.optimize.feature_lr, Config::default().optimize.feature_lr);
}

#[test]
fn presets_of_cards_differ_in_memory_alone() {
    for (name, gib, compact) in
        [("8gb", 8, true), ("12gb", 12, false), ("16gb", 16, false), ("24gb", 24, false)]
    {
        let preset = of_preset(name);
        assert_eq!(preset.memory.vram_limit, Some(Limit::Bytes(Bytes(gib << 30))), "{name}");
        assert_eq!(preset.memory.optimize_memory, Compactness::from(compact), "{name}");
        let memory = Config::default().memory;
        assert_eq!(Config { memory, ..preset }, Config::default(), "{name}");
    }
}

#[test]
fn every_flag_is_a_key_and_every_key_a_flag() {
    let command = Config::augment_args(clap::Command::new("splat"));
    let flags: Vec<_> = command
        .get_arguments()
        .filter(|flag| flag.get_id() != "low_dram")
        .map(|flag| (flag.get_id().to_string(), flag.get_long().unwrap().to_owned()))
        .collect();
    for (id, long) in &flags {
        assert_eq!(&id.replace('_', "-"), long, "the flag is the key with hyphens");
    }
    let ids: BTreeSet<_> = flags.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids.len(), flags.len(), "field names are unique over all sections");

    let keys = keys_of(&reference_toml().unwrap());
    assert_eq!(keys.iter().map(|(_, key)| key.clone()).collect::<BTreeSet<_>>(), ids);
    // What serde writes with every optional key set is the same set, section by section.
    let mut full = Config::default();
    full.scene.source_path = Some("a".into());
    full.optimize.init = Some("a".into());
    full.optimize.init_spz_axes = Some("rdf".to_owned());
    full.scene.depths = Some("a".into());
    full.optimize.normals = Some("a".into());
    full.scene.background = Some(Color::WHITE);
    full.scene.test_views = Some(1);
    full.scene.test_list = Some(TestList::Names(vec!["a".to_owned()]));
    full.scene.offset = Some(Offset([1.0, 2.0, 3.0]));
    full.scene.unit = Some(2.0);
    full.output.model_path = Some("a".into());
    full.output.experiment_name = Some("a".into());
    full.output.lpips_weights = Some("a".into());
    full.output.timelapse = Some("a".into());
    full.optimize.feature_rest_lr = Some(1e-3);
    full.optimize.time_budget = Some("60s".parse().unwrap());
    full.optimize.until_psnr = Some(30.0);
    full.densify.max_points = Some(1);
    full.densify.target_gaussians = Some(1);
    full.sugar.checkpoint_path = Some("a".into());
    full.sugar.iteration_to_load = Some(1);
    full.memory.vram_limit = Some(Limit::Percent(1.0));
    assert_eq!(keys_of(&full.to_toml().unwrap()), keys);
}

#[test]
fn the_commented_examples_of_the_reference_file_are_valid() {
    let text = reference_toml().unwrap();
    let examples = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => rest,
        _ => line,
    });
    let config = Config::from_toml("examples", &examples.collect::<Vec<_>>().join("\n")).unwrap();
    assert_eq!(config.densify.max_points, Some(1_000_000));
    assert_eq!(config.memory.vram_limit, Some(Limit::Bytes(Bytes(12 << 30))));
    assert!(config.scene.source_path.is_some() && config.output.experiment_name.is_some());
}

#[test]
fn a_written_configuration_reads_back_equal() {
    let line = "--feature_lr 0.1 --lambda-dssim 1e-7 --max-points 9223372036854775807 \
                --image-cache 1.5GiB --vram-limit 87.5% --test-iterations 1 -1 3 --device cpu -w \
                --eval True --seed 12345678901234567";
    let words: Vec<&str> =
        ["-s", "a \"quoted\" name"].into_iter().chain(line.split_whitespace()).collect();
    let (mut config, _) = parsed(&words);
    config.optimize.position_lr_init = 1.0 / 3.0;
    let text = config.to_toml().unwrap();
    assert_eq!(Config::from_toml("config.toml", &text).unwrap(), config, "{text}");
    assert!(config.scene.eval && config.scene.white_background);
    assert_eq!(config.memory.image_cache, Bytes(3 << 29));
}

#[test]
fn later_layers_win_and_only_typed_flags_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "[optimize]\niterations = 300\nsh_degree = 2\n").unwrap();
    let base = "[optimize]\niterations = 1\nsh_degree = 1\nopacity_lr = 0.5\nfeature_lr = 0.7\n\
                [scene]\nresolution = 4\n[memory]\nhigh_dram = true\n";
    let (flags, matches) = parsed(&["--sh_degree", "0", "--feature-lr=0.0025", "--low-dram"]);
    let config = resolve(Layers {
        on_processor: false,
        is_new: false,
        base: Some(ConfigLayer { origin: "checkpoint", text: base }),
        preset: Some("smoke"),
        file: Some(&file),
        typed: Some(Typed { flags: &flags, matches: &matches }),
    })
    .unwrap();
    assert_eq!(config.optimize.opacity_lr, 0.5, "from the base");
    assert_eq!(config.scene.resolution, 8, "from the preset");
    assert_eq!(config.optimize.iterations, 300, "from the file");
    assert_eq!(config.optimize.sh_degree, 0, "from the command line");
    assert_eq!(config.optimize.feature_lr, 0.0025, "typed, though it is the default");
    assert!(!config.memory.high_dram, "--low-dram takes high_dram back");
    assert_eq!(config.run.device, DeviceChoice::Auto);
}

#[test]
fn the_strategy_mcmc_brings_its_preset_beneath_all_that_is_given() {
    let preset = of_preset("mcmc");
    assert_eq!(resolved("", &["--strategy", "mcmc"]).unwrap(), preset);
    let densify = &preset.densify;
    assert_eq!((densify.densify_until_iter, densify.max_points), (25_000, Some(1_000_000)));
    let optimize = &preset.optimize;
    assert_eq!((optimize.init_opacity, optimize.init_scale), (0.5, 0.1));
    assert_eq!((optimize.opacity_reg, optimize.scale_reg), (0.01, 0.01));

    let toml = "[densify]\nstrategy = \"mcmc\"\nmax_points = 77\n[optimize]\nopacity_reg = 0.0\n";
    let config = resolved(toml, &["--init-scale", "1"]).unwrap();
    assert_eq!((config.densify.max_points, config.optimize.opacity_reg), (Some(77), 0.0));
    assert_eq!((config.optimize.init_scale, config.optimize.init_opacity), (1.0, 0.5));
    // A complete configuration, as a checkpoint's, says everything.
    let complete = Config::default().to_toml().unwrap();
    let config = resolved(&complete, &["--strategy", "mcmc"]).unwrap();
    assert_eq!(config.densify.densify_until_iter, Config::default().densify.densify_until_iter);
    // And one that is read back is what was written.
    let text = preset.to_toml().unwrap();
    assert_eq!(Config::from_toml("config.toml", &text).unwrap(), preset);
    assert_eq!(resolved(toml, &["--strategy", "adc"]).unwrap().densify.densify_until_iter, 15_000);
}

#[test]
fn absgrad_brings_its_threshold_unless_one_is_given() {
    let threshold = |words: &[&str]| resolved("", words).unwrap().densify.densify_grad_threshold;
    assert_eq!([threshold(&[]), threshold(&["--absgrad"])], [2e-4, 8e-4]);
    assert_eq!(threshold(&["--absgrad", "--densify-grad-threshold", "2e-4"]), 2e-4);
    assert_eq!(threshold(&["--absgrad", "false"]), 2e-4);
}

#[test]
fn the_preset_mip_turns_on_both_filters_and_its_density_control() {
    let mip = of_preset("mip");
    assert!(mip.optimize.antialiasing && mip.optimize.filter_3d);
    assert_eq!((mip.optimize.kernel_size, mip.densify.strategy), (0.1, StrategyName::Gof));
    assert_eq!((mip.densify.near_fade, mip.densify.densify_grad_threshold), (0.37, 4e-4));
}

/// Resolves the options of a new run with these flags.
fn of_new_run(words: &[&str], preset: Option<&str>) -> Config {
    let (flags, matches) = parsed(words);
    let typed = Some(Typed { flags: &flags, matches: &matches });
    resolve(Layers { is_new: true, preset, typed, ..Layers::default() }).unwrap()
}

#[test]
fn a_new_run_takes_the_preset_fast_where_nothing_says_how_it_grows() {
    let fast = of_new_run(&[], Some("fast"));
    assert_eq!(of_new_run(&[], None), fast);
    assert_eq!(of_new_run(&[], Some("default")), fast);
    assert_eq!(of_new_run(&[], Some("reference")), Config::default());
    let on_card = of_new_run(&[], Some("16gb"));
    assert_eq!((&on_card.optimize, &on_card.densify), (&fast.optimize, &fast.densify));
    let reference = Config::default().optimize.iterations;
    for words in [
        "--strategy=adc",
        "--primitive=surfels",
        "--absgrad",
        "--densify-grad-threshold=1e-4",
        "--near-fade=0.3",
        "--prune-scale=0.2",
        "--regularize=density",
        "-c=model",
    ] {
        let config = of_new_run(&[words], None);
        assert_eq!(config.optimize.iterations, reference, "{words}");
        assert_eq!(config.densify.strategy, StrategyName::Adc, "{words}");
    }
    assert_eq!(of_new_run(&["--strategy=mcmc"], None), of_new_run(&[], Some("mcmc")));
    // What is the default chooses nothing.
    for words in
        ["--strategy=budget", "--primitive=gaussians", "--regularize=none", "--absgrad=false"]
    {
        assert_eq!(of_new_run(&[words], None), fast, "{words}");
    }
    let idle = of_new_run(&["--strategy=budget", "--near-fade=0.3"], None);
    assert_eq!(idle.optimize, fast.optimize);
}

#[test]
fn iterations_that_are_given_are_not_bounded_by_passes_of_a_preset() {
    let passes = |words: &[&str]| {
        let optimize = of_new_run(words, None).optimize;
        [optimize.iterations, optimize.min_passes, optimize.max_passes]
    };
    assert_eq!(passes(&[]), [6000, 28, 65]);
    assert_eq!(passes(&["--iterations=6000"]), [6000, 0, 0]);
    assert_eq!(passes(&["--iterations=900", "--max-passes=3"]), [900, 0, 3]);
    assert_eq!(passes(&["--max-passes=3"]), [6000, 28, 3]);
    // A clock has its time.
    assert_eq!(passes(&["--time-budget=5s"]), [6000, 28, 100]);
    assert_eq!(passes(&["--time-budget=5s", "--max-passes=3"]), [6000, 28, 3]);
    let draft = of_new_run(&["--time-budget=5s"], Some("draft"));
    assert_eq!(draft.optimize.max_passes, 100);
    // That of an earlier run, too.
    let base =
        Some(ConfigLayer { origin: "base.toml", text: "[optimize]\ntime_budget = \"3s\"\n" });
    let resumed = resolve(Layers { base, preset: Some("fast"), ..Layers::default() }).unwrap();
    assert_eq!(resumed.optimize.max_passes, 100);
    for (preset, expected) in [("draft", [2000, 0, 50]), ("best", [24_000, 28, 65])] {
        let optimize = of_new_run(&[], Some(preset)).optimize;
        assert_eq!([optimize.iterations, optimize.min_passes, optimize.max_passes], expected);
    }
}

#[test]
fn the_length_of_a_lower_layer_stays_beneath_the_usual_preset() {
    let base = "[optimize]\niterations = 1500\nopacity_lr = 0.5\n";
    let base = Some(ConfigLayer { origin: "base.toml", text: base });
    let config = resolve(Layers { base, is_new: true, ..Layers::default() }).unwrap();
    let OptimizeOptions { iterations, position_lr_max_steps, max_passes, .. } = config.optimize;
    assert_eq!([iterations, position_lr_max_steps, max_passes], [1500, 1500, 0]);
    assert_eq!(config.densify.densify_until_iter, 750);
    assert_eq!(config.optimize.opacity_lr, 0.025, "the preset is above the rest of the layer");
}

#[test]
fn draft_and_best_are_the_preset_fast_of_another_length() {
    let fast = of_preset("fast");
    for (name, iterations) in [("draft", 2000), ("best", 24_000)] {
        let other = of_preset(name);
        let (optimize, densify) = (other.optimize, other.densify);
        assert_eq!((optimize.iterations, densify.densify_until_iter), (iterations, iterations / 2));
        assert_eq!(optimize.normals_from_iter, iterations / 5);
        let same = OptimizeOptions {
            iterations: fast.optimize.iterations,
            normals_from_iter: fast.optimize.iterations / 5,
            position_lr_max_steps: fast.optimize.position_lr_max_steps,
            sh_degree_interval: fast.optimize.sh_degree_interval,
            min_passes: fast.optimize.min_passes,
            max_passes: fast.optimize.max_passes,
            few_view_passes: fast.optimize.few_view_passes,
            ensemble: fast.optimize.ensemble,
            ..optimize
        };
        assert_eq!(same, fast.optimize, "{name}");
        let noise = |config: &DensifyOptions| (config.strategy, config.unseen_noise_lr);
        assert_eq!(noise(&densify), noise(&fast.densify));
        assert_eq!(other.scene, fast.scene);
    }
}

#[test]
fn the_preset_fast_has_schedules_that_end_with_its_iterations() {
    let fast = of_preset("fast");
    let (optimize, densify) = (&fast.optimize, &fast.densify);
    assert_eq!(optimize.position_lr_max_steps, optimize.iterations);
    assert!(densify.densify_until_iter < optimize.iterations && optimize.final_lr_share < 1.0);
    assert!(3 * optimize.sh_degree_interval <= densify.densify_until_iter);
    // The scene brings the number.
    assert_eq!(
        (densify.strategy, densify.opacity_reset_interval, densify.max_points),
        (StrategyName::Budget, 500, None)
    );
    let ends = |words: &[&str]| {
        let (flags, matches) = parsed(words);
        let typed = Some(Typed { flags: &flags, matches: &matches });
        let config = resolve(Layers { preset: Some("fast"), typed, ..Layers::default() }).unwrap();
        let DensifyOptions { densify_from_iter, densify_until_iter, .. } = config.densify;
        (config.optimize.position_lr_max_steps, [densify_from_iter, densify_until_iter])
    };
    assert_eq!(ends(&[]), (6000, [500, 3000]));
    assert_eq!(ends(&["--iterations=10000"]), (10_000, [500, 5000]));
    assert_eq!(ends(&["--iterations=600"]), (600, [75, 300]));
    assert_eq!(ends(&["--iterations=10000", "--densify-until-iter=5"]), (10_000, [500, 5]));
}

#[test]
fn gof_brings_its_threshold_and_fade_unless_they_are_given() {
    let values = |words: &[&str]| {
        let densify = resolved("", words).unwrap().densify;
        (densify.densify_grad_threshold, densify.near_fade)
    };
    let gof = "--strategy=gof";
    assert_eq!([values(&[]), values(&[gof])], [(2e-4, 0.0), (4e-4, 0.37)]);
    assert_eq!(values(&[gof, "--near-fade=0"]), (4e-4, 0.0));
    assert_eq!(values(&[gof, "--densify-grad-threshold=2e-4"]), (2e-4, 0.37));
    assert_eq!(values(&["--strategy=adc", "--absgrad", "--near-fade=0.5"]), (8e-4, 0.5));
}

#[test]
fn a_background_and_white_are_one_or_the_other() {
    let color = |words: &[&str]| resolved("", words).unwrap().scene.background_color();
    assert_eq!(color(&[]), Color::BLACK);
    assert_eq!(color(&["-w"]), Color::WHITE);
    assert_eq!(color(&["-w", "--background=1,1,1"]), Color::WHITE);
    assert_eq!(color(&["-w", "false", "--background=0,0.5,1"]), Color([0.0, 0.5, 1.0]));
}

#[test]
fn of_two_opposite_flags_the_last_wins() {
    let is_high = |words: &[&str]| resolved("", words).unwrap().memory.high_dram;
    assert!(is_high(&["--low-dram", "--high-dram"]) && !is_high(&["--high-dram", "--low-dram"]));
}

#[test]
fn what_a_file_has_wrong_is_named_with_its_line_and_its_place() {
    let sections = "base.toml|line 3|`sh_degree`|[scene]|section [optimize]";
    let number = "line 3|`resolution`|[scene]|\"big\"|a whole number";
    assert_refused(&[
        // Keys that do not exist.
        ("[scene]\neval = true\nsh_degree = 1\n", &[], sections),
        ("[optimise]\n", &[], "base.toml|line 1|section `optimise`|[scene] [optimize]"),
        (
            "\niterations = 3\n",
            &[],
            "base.toml|line 2|outside of sections `iterations`|section [optimize]",
        ),
        ("[optimize]\nsh-degree = 1\n", &[], "base.toml|line 2|`sh-degree`|write `sh_degree`"),
        ("[memory]\nlow_dram = true\n", &[], "base.toml|high_dram = false"),
        ("[run]\nsede = 1\n", &[], "base.toml|line 2|`sede`|do you mean `seed`?"),
        // Values of the wrong type.
        ("[scene]\n\nresolution = \"big\"\n", &[], number),
        ("[optimize]\niterations = -1\n", &[], "line 2|`iterations`|-1"),
        ("[memory]\nimage_cache = \"lots\"\n", &[], "line 2|`image_cache`|`lots` is not a size"),
        ("[memory]\nvram_limit = \"most\"\n", &[], "line 2|`vram_limit`|`most` is not a limit|80%"),
        ("[run]\ndevice = \"tpu\"\n", &[], "line 2|`device`|tpu|cuda"),
        ("[memory]\noptimize_memory = \"colours\"\n", &[], "base.toml|optimize_memory|\"sh\""),
        ("[memory]\noffload = \"geometry\"\n", &[], "base.toml|geometry|sh"),
        ("scene = 3\n", &[], "base.toml|3"),
        ("[scene\n", &[], "not valid TOML|line 1"),
    ]);
}

#[test]
fn a_value_out_of_range_is_named_with_flag_key_and_range() {
    assert_refused(&[
        ("", &["--sh-degree", "4"], "--sh-degree|`sh_degree` in [optimize]|is 4|0 to 3"),
        ("", &["-r", "0"], "--resolution|is 0|-1"),
        ("", &["-r", "-2"], "--resolution|is -2"),
        ("[optimize]\niterations = 0", &[], "--iterations|is 0|1 and more"),
        ("[optimize]\nfeature_lr = nan", &[], "--feature-lr|NaN|finite"),
        ("[optimize]\nopacity_lr = inf", &[], "--opacity-lr|inf"),
        ("", &["--lambda-dssim", "1.5"], "--lambda-dssim|is 1.5|0 to 1"),
        ("", &["--position-lr-final", "0"], "--position-lr-final|log-linear"),
        ("", &["--image-cache", "0"], "--image-cache|is 0|512MiB"),
        ("", &["--vram-limit", "0G"], "--vram-limit|is 0|12GiB"),
        ("", &["--vram_limit=101%"], "--vram-limit|is 101%|at most 100%"),
        ("", &["--vram-threshold", "0"], "--vram-threshold|is 0|more than 0"),
        ("", &["--vram-threshold", "1.01"], "--vram-threshold|is 1.01|at most 1"),
        ("", &["--eval", "--test-every", "1"], "--test-every|is 1|2 and more"),
        ("", &["--save-iterations", "5", "0"], "--save-iterations|is 0|-1"),
        ("", &["--experiment-name", "a/b"], "--experiment-name|`a/b`|slashes"),
        ("[scene]\nsource_path = \"\"", &[], "--source-path|empty"),
        (
            "",
            &["-w", "--background=0,0.5,1"],
            "--background|0,0.5,1|--white-background false|1,1,1",
        ),
    ]);
    assert!(resolved("", &["--test-every", "1"]).is_ok(), "it means nothing without --eval");
}

#[test]
fn a_missing_file_and_an_unknown_preset_are_named() {
    let file = Some(Path::new("no/such/file.toml"));
    let error = resolve(Layers { file, ..Layers::default() }).unwrap_err();
    assert!(error.to_string().contains("no/such/file.toml"), "{error}");
    let error = resolve(Layers { preset: Some("9gb"), ..Layers::default() }).unwrap_err();
    assert!(
        error.to_string().contains(
            "`9gb`. Give one of: reference, draft, fast, best, 8gb, 12gb, 16gb, 24gb, mcmc, mip, sugar-density, "
        ),
        "{error}"
    );
}

#[test]
fn a_number_that_toml_cannot_hold_is_refused_at_the_command_line() {
    let line = ["splat", "--seed", "9223372036854775808"];
    assert!(Line::command().try_get_matches_from(line).is_err());
    let mut config = Config::default();
    config.run.seed = u64::MAX;
    assert!(config.validate().unwrap_err().to_string().contains("--seed"));
}
