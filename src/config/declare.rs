//! `options!` declares a section of options. Each option is declared once: name, type, default, help, allowed values
//! and the conditions under which it has no effect.
//!
//! ```text
//! options! {
//!     /// What the section is about.
//!     pub struct SceneOptions in "scene" of SceneOptions {
//!         /// Help in one line, for -h
//!         ///
//!         /// Details, for --help.
//!         #[arg(value_name = "N")]
//!         test_every: u32 = 8, is count, idle when(is_idle, "without --eval");
//!     }
//! }
//! ```
//!
//! `is` is a function of `values.rs` or a closure, applied to given values from any source. `idle` is a list of
//! [`Idle`], whose conditions take the type after `of`. Both are optional. The type of an option determines its flag:
//!
//! | type | flag | default |
//! |---|---|---|
//! | `bool` | a switch: `--key`, `--key true`, `--key false` | stated |
//! | `Option<T>` | `--key VALUE` | none, so it is left out |
//! | `Vec<T>` | `--key VALUE...`, with spaces or commas | stated |
//! | other | `--key VALUE` | stated |

/// Declares a section of options; see the head of this file.
macro_rules! options {
    // The last step sorts everything into four lists.
    (
        @next [$(#[$about:meta])* $Section:ident $section:literal $Whole:ty]
        [$($field:tt)*]
        [$($default:tt)*]
        [$(($check:ident $checked:ident $is:expr))*]
        [$(($key:ident $idle:expr))*]
    ) => {
        #[derive(clap::Args, Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[$about])*
        #[serde(default, deny_unknown_fields)]
        pub struct $Section { $($field)* }

        impl Default for $Section {
            fn default() -> Self {
                Self { $($default)* }
            }
        }

        impl $Section {
            /// Name of the section in a configuration file.
            pub(super) const NAME: &str = $section;

            /// Conditions under which options of the section have no effect.
            pub(super) const IDLE: &[(&str, Idle<$Whole>)] =
                &[$((stringify!($key), $idle)),*];

            /// Checks each option by itself. Returns an error for the first value out of range.
            pub(super) fn check_values(&self) -> Result<(), super::ConfigError> {
                $(super::values::$check(&self.$checked, $is)
                    .map_err(|refused| refused.of($section, stringify!($checked)))?;)*
                Ok(())
            }
        }
    };
    (
        @next $head:tt [$($field:tt)*] [$($default:tt)*] [$($check:tt)*] [$($idle:tt)*]
        $(#[$about:meta])*
        $key:ident: Option<$Value:ty> $(, is $is:expr)? $(, idle $($when:expr),+)?;
        $($rest:tt)*
    ) => {
        options! {
            @next $head
            [$($field)* $(#[$about])*
                #[arg(long)]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$Value>,]
            [$($default)* $key: None,]
            [$($check)* $((check_given $key $is))?]
            [$($idle)* $($(($key $when))+)?]
            $($rest)*
        }
    };
    (
        @next $head:tt [$($field:tt)*] [$($default:tt)*] [$($check:tt)*] [$($idle:tt)*]
        $(#[$about:meta])*
        $key:ident: bool = $value:expr $(, is $is:expr)? $(, idle $($when:expr),+)?;
        $($rest:tt)*
    ) => {
        options! {
            @next $head
            [$($field)* $(#[$about])*
                #[arg(
                    long,
                    value_name = "BOOL",
                    num_args = 0..=1,
                    default_missing_value = "true",
                    default_value_t = Self::default().$key,
                    hide_default_value = true,
                    value_parser = super::values::parse_switch,
                    action = clap::ArgAction::Set,
                )]
                pub $key: bool,]
            [$($default)* $key: $value,]
            [$($check)* $((check $key $is))?]
            [$($idle)* $($(($key $when))+)?]
            $($rest)*
        }
    };
    (
        @next $head:tt [$($field:tt)*] [$($default:tt)*] [$($check:tt)*] [$($idle:tt)*]
        $(#[$about:meta])*
        $key:ident: Vec<$Value:ty> = $value:expr $(, is $is:expr)? $(, idle $($when:expr),+)?;
        $($rest:tt)*
    ) => {
        options! {
            @next $head
            [$($field)* $(#[$about])*
                #[arg(long, num_args = 1.., value_delimiter = ',', default_values_t = Self::default().$key)]
                pub $key: Vec<$Value>,]
            [$($default)* $key: $value,]
            [$($check)* $((check $key $is))?]
            [$($idle)* $($(($key $when))+)?]
            $($rest)*
        }
    };
    (
        @next $head:tt [$($field:tt)*] [$($default:tt)*] [$($check:tt)*] [$($idle:tt)*]
        $(#[$about:meta])*
        $key:ident: $Value:ty = $value:expr $(, is $is:expr)? $(, idle $($when:expr),+)?;
        $($rest:tt)*
    ) => {
        options! {
            @next $head
            [$($field)* $(#[$about])*
                #[arg(long, default_value_t = Self::default().$key)]
                pub $key: $Value,]
            [$($default)* $key: $value,]
            [$($check)* $((check $key $is))?]
            [$($idle)* $($(($key $when))+)?]
            $($rest)*
        }
    };
    (
        $(#[$about:meta])*
        pub struct $Section:ident in $section:literal of $Whole:ty { $($option:tt)* }
    ) => {
        options! { @next [$(#[$about])* $Section $section $Whole] [] [] [] [] $($option)* }
    };
}

pub(super) use options;

/// Heading in `--help` of options that set a schedule or a constant of a paper (`help_heading`).
pub(super) const ADVANCED: &str = "Advanced";

/// Condition under which an option has no effect. `C` is a section, facts of several sections, or all options.
pub(super) enum Idle<C> {
    /// Depends on other options.
    When {
        /// True if the option has no effect.
        is: fn(&C) -> bool,
        /// Words that follow `--key has no effect`.
        words: &'static str,
    },
    /// Applies on the CPU.
    OnCpu,
}

/// Returns the condition under which an option has no effect, and the words that follow `--key has no effect`.
pub(super) const fn when<C>(is: fn(&C) -> bool, words: &'static str) -> Idle<C> {
    Idle::When { is, words }
}

/// Returns the flag of an option.
pub(super) fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// Returns a sentence for each given option without effect.
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
