//! When an option has no effect.

/// When an option has no effect. Conditions are about a `C`: a section, or all options.
pub(super) enum Idle<C> {
    /// If other options have certain values.
    When {
        /// Whether they have them.
        is: fn(&C) -> bool,
        /// What follows `--key has no effect`.
        words: &'static str,
    },
    /// On the CPU.
    OnCpu,
}

/// The flag of an option.
pub(super) fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// A sentence for each option that was given and has no effect.
pub(super) fn idle_options<C>(
    rules: &[(&str, Idle<C>)],
    config: &C,
    was_given: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let sentence = |(key, idle): &(&str, Idle<C>)| match idle {
        Idle::When { is, words } if was_given(key) && is(config) => {
            Some(format!("{} has no effect {words}", flag(key)))
        }
        Idle::When { .. } | Idle::OnCpu => None,
    };
    rules.iter().filter_map(sentence).collect()
}
