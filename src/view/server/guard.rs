//! Who may ask: whoever has the token, by the address that the server was given.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};

/// Random bytes of a token.
const TOKEN_BYTES: usize = 16;

/// A secret that stands in the address of a page. Each server has its own.
#[derive(Clone, Debug)]
pub struct AccessToken(String);

impl AccessToken {
    /// A new one, of the system's random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// As it stands in the address.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether a text is this one; it takes as long wherever they differ.
    fn is(&self, text: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differs = own.iter().zip(text).fold(0, |differs, (a, b)| differs | (a ^ b));
        own.len() == text.len() && differs == 0
    }
}

/// Whom the server answers.
#[derive(Clone, Debug)]
pub struct Access {
    /// What asks for data has to have.
    pub token: AccessToken,
    /// Names that the server is reached by, beside its addresses.
    pub hosts: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessRefusal {
    /// It was sent to another name, as a page does that made its own name ours.
    Host,
    /// It comes from another page.
    Origin,
    /// It has no token, or a wrong one.
    Token,
}

impl Access {
    /// Fails where a request was not meant for the server at this address.
    pub(super) fn check_names(&self, headers: &HeaderMap, at: IpAddr) -> Result<(), AccessRefusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let has_one = headers.get_all(HOST).iter().count() == 1;
        let host =
            host.filter(|host| has_one && self.is_ours(host, at)).ok_or(AccessRefusal::Host)?;
        let is_same = |origin: &[u8]| origin == format!("http://{host}").as_bytes();
        match headers.get(ORIGIN) {
            Some(origin) if !is_same(origin.as_bytes()) => Err(AccessRefusal::Origin),
            _ => Ok(()),
        }
    }

    /// Fails where a request has not the token.
    pub(super) fn check_token(&self, headers: &HeaderMap) -> Result<(), AccessRefusal> {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let token = given.and_then(|given| given.strip_prefix(b"Bearer "));
        let is_right = token.is_some_and(|token| self.token.is(token));
        if is_right { Ok(()) } else { Err(AccessRefusal::Token) }
    }

    /// Whether a name, with any port, is one of the server's: the port may be one that is forwarded. An
    /// address cannot be made somebody else's, as a name can; of this machine alone, only its own are right.
    fn is_ours(&self, host: &str, at: IpAddr) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            _ => host,
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let is_address = match bare.parse::<IpAddr>() {
            Ok(address) => !at.is_loopback() || address.is_loopback(),
            Err(_) => false,
        };
        let named = |known: &str| name.eq_ignore_ascii_case(known);
        is_address || named("localhost") || self.hosts.iter().any(|known| named(known))
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const HERE: [u8; 4] = [127, 0, 0, 1];

    fn access(hosts: &[&str]) -> Access {
        let token = AccessToken::random().unwrap();
        Access { token, hosts: hosts.iter().map(ToString::to_string).collect() }
    }

    fn names(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        headers
    }

    #[test]
    fn a_token_is_32_digits_and_never_the_same() {
        let [a, b] = [0, 1].map(|_| AccessToken::random().unwrap());
        assert!(a.text().len() == 32 && a.text().chars().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(a.text(), b.text());
    }

    #[test]
    fn only_the_whole_token_is_right() {
        let access = access(&[]);
        let right = access.token.text().to_owned();
        let ask = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            access.check_token(&headers)
        };
        assert_eq!(ask(&format!("Bearer {right}")), Ok(()));
        let longer = format!("Bearer {right}0");
        let shorter = format!("Bearer {}", &right[1..]);
        for wrong in ["", "Bearer ", right.as_str(), longer.as_str(), shorter.as_str()] {
            assert_eq!(ask(wrong), Err(AccessRefusal::Token), "{wrong}");
        }
        assert_eq!(access.check_token(&HeaderMap::new()), Err(AccessRefusal::Token));
    }

    #[test]
    fn names_of_others_are_refused() {
        let access = access(&["Workstation.lan"]);
        let check = |host: &str| access.check_names(&names(host, None), HERE.into());
        for ours in [
            "127.0.0.1:7007",
            "localhost:8080",
            "localhost",
            "[::1]:7007",
            "[::1]",
            "workstation.lan:7007",
        ] {
            assert_eq!(check(ours), Ok(()), "{ours}");
        }
        for other in [
            "127.0.0.1:",
            "127.0.0.1:x",
            "evil.example:7007",
            "localhost.evil.example:7007",
            "192.168.1.2:7007",
            "",
            ":7007",
            "localhost:7007:7007",
        ] {
            assert_eq!(check(other), Err(AccessRefusal::Host), "{other}");
        }
        assert_eq!(access.check_names(&HeaderMap::new(), HERE.into()), Err(AccessRefusal::Host));
        let mut two = names("localhost:7007", None);
        two.append(HOST, HeaderValue::from_static("evil.example:7007"));
        assert_eq!(access.check_names(&two, HERE.into()), Err(AccessRefusal::Host));
    }

    #[test]
    fn a_server_for_others_is_reached_by_its_addresses() {
        let at = [0, 0, 0, 0].into();
        let check = |host: &str| access(&[]).check_names(&names(host, None), at);
        assert_eq!(check("192.168.1.2:7007"), Ok(()));
        assert_eq!(check("evil.example:7007"), Err(AccessRefusal::Host));
    }

    #[test]
    fn pages_of_others_are_refused() {
        let check = |origin: &str| {
            let headers = names("localhost:7007", Some(origin));
            access(&[]).check_names(&headers, HERE.into())
        };
        assert_eq!(check("http://localhost:7007"), Ok(()));
        for other in
            ["null", "http://evil.example", "https://localhost:7007", "http://127.0.0.1:7007"]
        {
            assert_eq!(check(other), Err(AccessRefusal::Origin), "{other}");
        }
    }
}
