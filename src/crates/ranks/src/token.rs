//! The secret that the ranks of one run share, and proofs of it.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Secret of 128 bits that the ranks of one run share.
///
/// The token is never sent. A rank and the coordinator prove to each other that they know it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 16]);

impl Token {
    /// Creates a random token.
    pub fn fresh() -> io::Result<Self> {
        random().map(Self)
    }

    /// Derives the token of a run from the user's secret, equally in all processes with access to the user's files.
    /// `folder` holds the secret, which is created if it is missing.
    pub(crate) fn of_user(folder: &Path, run: &str) -> io::Result<Self> {
        Ok(Self(user_secret(folder)?).derived(USER_TOKEN, &[0; 16], run.as_bytes()))
    }

    /// Parses 32 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        bytes_from_hex(text).map(Self)
    }

    /// Returns the 32 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Returns the proof that this prover knows the token and these bytes: 64 hexadecimal digits. The nonce is the
    /// receiver's, so that a proof cannot be replayed.
    pub(crate) fn proof(&self, prover: Prover, nonce: &[u8; 16], bytes: &[u8]) -> String {
        hex(&self.mac(prover.context(), nonce, bytes).finalize().into_bytes())
    }

    /// True if `proof` is valid. Takes constant time.
    pub(crate) fn is_proven(
        &self,
        prover: Prover,
        nonce: &[u8; 16],
        bytes: &[u8],
        proof: &str,
    ) -> bool {
        let mac = self.mac(prover.context(), nonce, bytes);
        bytes_from_hex::<32>(proof).is_some_and(|proof| mac.verify_slice(&proof).is_ok())
    }

    /// Derives the token of the data connections.
    pub(crate) fn of_data(&self, salt: &[u8; 16]) -> Self {
        self.derived(DATA_TOKEN, salt, &[])
    }

    fn derived(&self, context: &[u8; 16], nonce: &[u8; 16], bytes: &[u8]) -> Self {
        let code = self.mac(context, nonce, bytes).finalize().into_bytes();
        let mut token = [0; 16];
        token.copy_from_slice(&code[..16]);
        Self(token)
    }

    /// Computes an authentication code. The context has a fixed length, so that a code is valid for one purpose only.
    fn mac(&self, context: &[u8; 16], nonce: &[u8; 16], bytes: &[u8]) -> Hmac<Sha256> {
        // HMAC pads a key that is shorter than a block with zeros.
        let mut block = [0; 64];
        block[..16].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(context);
        mac.update(nonce);
        mac.update(bytes);
        mac
    }
}

/// End of a connection that proves its knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prover {
    Rank,
    Coordinator,
}

impl Prover {
    fn context(self) -> &'static [u8; 16] {
        match self {
            Self::Rank => b"splat-ranks rank",
            Self::Coordinator => b"splat-ranks lead",
        }
    }
}

/// Context of the token of the data connections.
const DATA_TOKEN: &[u8; 16] = b"splat-ranks mesh";

/// Context of the token that is derived from a user's secret.
const USER_TOKEN: &[u8; 16] = b"splat-ranks user";

/// File of a user's secret.
const SECRET_FILE: &str = "ranks.secret";

/// Returns the folder of the user's secret: `$XDG_STATE_HOME/splat` or `~/.local/state/splat`.
pub(crate) fn state_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("splat"))
}

/// Reads or creates the secret of this user. Simultaneous ranks get the same secret.
fn user_secret(folder: &Path) -> io::Result<[u8; 16]> {
    let path = folder.join(SECRET_FILE);
    match read_secret(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    fs::create_dir_all(folder)?;
    // The link appears with complete content, and the first one stays.
    let new = folder.join(format!("{SECRET_FILE}.{}", hex(&random()?)));
    let made = private(OpenOptions::new().write(true).create_new(true))
        .open(&new)
        .and_then(|mut file| file.write_all(&random()?))
        .and_then(|()| match fs::hard_link(&new, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        });
    fs::remove_file(&new).ok();
    made?;
    read_secret(&path)
}

fn read_secret(path: &Path) -> io::Result<[u8; 16]> {
    let mut file = private(OpenOptions::new().read(true)).open(path)?;
    check_private(&file.metadata()?)?;
    let mut secret = [0; 16];
    file.read_exact(&mut secret)?;
    Ok(secret)
}

/// Follows no link, blocks on no pipe, and creates files that only this user can read.
#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Fails if others can read or write the secret.
#[cfg(unix)]
fn check_private(about: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    // SAFETY: the call reads a number of this process.
    let user = unsafe { libc::geteuid() };
    if about.is_file() && about.uid() == user && about.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::other("others can read it: remove it"))
}

#[cfg(not(unix))]
fn check_private(_about: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

impl fmt::Debug for Token {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Returns 16 random bytes of the system.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses exactly two hexadecimal digits per byte.
pub(crate) fn bytes_from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_parsed_from_its_digits() {
        let token = Token::fresh().unwrap();
        assert_eq!(Token::from_hex(&token.to_hex()), Some(token.clone()));
        assert_ne!(Token::fresh().unwrap(), token);
        assert_eq!(format!("{token:?}"), "Token(..)");
        let digits = "00112233445566778899aabbccddeeff";
        assert_eq!(Token::from_hex(digits).unwrap().to_hex(), digits);
        for wrong in [
            "",
            "0011",
            &format!("{digits}0"),
            &digits.replace('f', "g"),
            "+0112233445566778899aabbccddeeff",
        ] {
            assert_eq!(Token::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_proof_is_the_hmac_of_context_nonce_and_bytes() {
        // From `openssl dgst -sha256 -mac HMAC` of their concatenation.
        let token = Token::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
        let proof = token.proof(Prover::Rank, b"0123456789abcdef", b"hello");
        assert_eq!(proof, PROOF);
        assert!(token.is_proven(Prover::Rank, b"0123456789abcdef", b"hello", &proof));
        assert_eq!(token.of_data(b"0123456789abcdef").to_hex(), KEY);
    }

    const PROOF: &str = "0df73e95d5403b4ad4a1bdfdc2ee80b85c4a37a7a460242aaa36e8cebc961ded";
    const KEY: &str = "b3164603a55ae5e9596eb3b53e1a7d3d";

    #[test]
    fn another_token_prover_nonce_or_text_proves_nothing() {
        let (token, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
        let (rank, leader) = (Prover::Rank, Prover::Coordinator);
        let proof = token.proof(rank, &[1; 16], b"hello");
        assert!(!other.is_proven(rank, &[1; 16], b"hello", &proof));
        assert!(!token.is_proven(leader, &[1; 16], b"hello", &proof));
        assert!(!token.is_proven(rank, &[2; 16], b"hello", &proof));
        assert!(!token.is_proven(rank, &[1; 16], b"hellO", &proof));
        assert!(!token.is_proven(rank, &[1; 16], b"hello", &proof[2..]));
        assert!(!token.is_proven(rank, &[1; 16], b"hello", ""));
    }

    #[test]
    fn processes_of_a_user_share_a_token_that_depends_on_the_run() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("state/splat");
        let threads: Vec<_> = (0..8)
            .map(|_| folder.clone())
            .map(|folder| std::thread::spawn(move || Token::of_user(&folder, "a").unwrap()))
            .collect();
        let tokens: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(tokens.iter().all(|token| *token == tokens[0]));
        assert_ne!(Token::of_user(&folder, "b").unwrap(), tokens[0]);
        assert_ne!(Token::of_user(home.path(), "a").unwrap(), tokens[0]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let home = tempfile::tempdir().unwrap();
        let token = || Token::of_user(home.path(), "a");
        let path = home.path().join(SECRET_FILE);
        token().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(token().unwrap_err().to_string().contains("remove it"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let moved = home.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        symlink(&moved, &path).unwrap();
        assert!(token().is_err());
    }

    #[test]
    fn the_secret_is_in_the_users_state_folder() {
        let of = |variables: &[(&str, &str)]| {
            state_folder(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, path)| path.into())
            })
        };
        let [home, state] = [("HOME", "/home/a"), ("XDG_STATE_HOME", "/state")];
        assert_eq!(of(&[home, state]), Some("/state/splat".into()));
        assert_eq!(of(&[home, ("XDG_STATE_HOME", "x")]), Some("/home/a/.local/state/splat".into()));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn another_token_or_salt_makes_another_token_of_the_data() {
        let (token, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
        assert_eq!(token.of_data(&[1; 16]), token.clone().of_data(&[1; 16]));
        assert_ne!(token.of_data(&[1; 16]), other.of_data(&[1; 16]));
        assert_ne!(token.of_data(&[1; 16]), token.of_data(&[2; 16]));
        assert_ne!(token.of_data(&[1; 16]), token);
    }
}
