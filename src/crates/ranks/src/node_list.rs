//! Lists of hosts as SLURM writes them: `node[01-04,07],x3`.

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

/// The first host of a list, by the numbers as they are written: `node[01-04]` begins with
/// `node01`.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
