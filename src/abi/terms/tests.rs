use super::*;

const ALL: [Term; 10] = [
    Term::Photometric { lambda_dssim: 0.2 },
    Term::InverseDepth,
    Term::NormalMap,
    Term::DepthNormal { depths: NormalDepths::All },
    Term::MultiView,
    Term::Distortion,
    Term::Entropy,
    Term::Density,
    Term::Normal,
    Term::Sdf { unit: 0.1 },
];

fn all() -> Terms {
    let mut terms = Terms::default();
    ALL.iter().for_each(|&term| terms.add(term, 0.5));
    terms.sampled_by(SampleRule { count: 3, seed: 1, iteration: 1 })
}

#[test]
fn derivatives_match_the_change_of_the_loss() {
    for term in ALL {
        for value in term.values() {
            let mut means = [0.25; TERM_VALUES as usize];
            let before = term.loss(&means);
            means[value.place as usize] += 1.0;
            // The loss is linear, so only rounding remains.
            let change = term.loss(&means) - before;
            assert!((change - term.d_loss(value.place)).abs() < 1e-12, "{}", value.name);
        }
    }
}

#[test]
fn values_are_means_over_a_set_of_their_stage() {
    for term in ALL {
        for value in term.values() {
            let of_pixels = matches!(value.over, Over::Pixels | Over::Channels | Over::Windows);
            assert_eq!(of_pixels, term.at() == At::Pixels, "{}", value.name);
        }
    }
}

#[test]
fn values_have_distinct_indices_and_names() {
    let values: Vec<Value> = ALL.iter().flat_map(|term| term.values()).copied().collect();
    assert_eq!(values.len(), TERM_VALUES as usize);
    for (i, value) in values.iter().enumerate() {
        assert!(value.place < TERM_VALUES);
        let same = |other: &&Value| other.place == value.place || other.name == value.name;
        assert!(values[i + 1..].iter().find(same).is_none(), "{value:?}");
    }
}

#[test]
fn terms_without_weight_or_samples_are_off() {
    let mut terms = all();
    assert_eq!(terms.active().count(), ALL.len());
    let every = Inputs {
        inverse_depths: true,
        inverse_squares: true,
        maps: true,
        median: true,
        other_view: true,
        neighbours: true,
        samples: true,
    };
    assert_eq!(terms.needs(), every);
    terms.samples.count = 0;
    let left: Vec<&str> = terms.active().map(|weighted| weighted.term.name()).collect();
    let of_maps = ["photometric", "inverse depth", "normal map"];
    let of_surfaces = ["depth-normal", "multi-view", "distortion", "entropy"];
    assert_eq!(left, [&of_maps[..], &of_surfaces].concat());
    assert!(!terms.needs().neighbours && terms.sdf_unit().is_none());
    terms.add(Term::DepthNormal { depths: NormalDepths::Opaque }, 0.0);
    terms.add(Term::MultiView, 0.0);
    terms.add(Term::Distortion, 0.0);
    assert_eq!(terms.needs(), Inputs { inverse_depths: true, ..Inputs::NONE });
    assert_eq!((terms.weight(VALUE_DN), terms.weight(VALUE_SSIM)), (0.0, 0.5));
}

#[test]
fn added_term_replaces_one_of_its_kind() {
    let terms = all().with(Term::Sdf { unit: 0.7 }, 0.25);
    assert_eq!(terms.active().count(), ALL.len());
    assert_eq!((terms.weight(VALUE_SDF), terms.sdf_unit()), (0.25, Some(0.7)));
}
