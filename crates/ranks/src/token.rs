//! The secret that the ranks of one run share, and what it proves.

use std::fmt;
use std::io;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The secret of one run: 128 bits that all of its ranks know and nobody else does.
///
/// It never travels: a rank and the coordinator prove to each other that they know it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 16]);

impl Token {
    /// A new one, from the system's random numbers; the error is the system's.
    pub fn fresh() -> io::Result<Self> {
        random().map(Self)
    }

    /// Reads 32 hexadecimal digits; none for anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        bytes_from_hex(text).map(Self)
    }

    /// Its 32 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// What shows that this prover knows the token and these bytes: 64 hexadecimal digits.
    ///
    /// The nonce is the receiver's and used once, so that a proof that was overheard is worth
    /// nothing.
    pub(crate) fn proof(&self, prover: Prover, nonce: &[u8; 16], bytes: &[u8]) -> String {
        hex(&self.mac(prover.context(), nonce, bytes).finalize().into_bytes())
    }

    /// Whether this is that proof; takes the same time wherever the two differ.
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

    /// The key of the connections between ranks: the same for all who know the token and the salt.
    pub(crate) fn mesh_key(&self, salt: &[u8; 16]) -> [u8; 16] {
        let code = self.mac(MESH_KEY, salt, &[]).finalize().into_bytes();
        let mut key = [0; 16];
        key.copy_from_slice(&code[..16]);
        key
    }

    /// The context comes first and always has the same length, so that no code made for one purpose
    /// is one for another.
    fn mac(&self, context: &[u8; 16], nonce: &[u8; 16], bytes: &[u8]) -> Hmac<Sha256> {
        // A key shorter than a block is padded with zeros: that is HMAC's own rule.
        let mut block = [0; 64];
        block[..16].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(context);
        mac.update(nonce);
        mac.update(bytes);
        mac
    }
}

/// Who proves that he knows a token.
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

/// The context of the key that is made of a token.
const MESH_KEY: &[u8; 16] = b"splat-ranks mesh";

impl fmt::Debug for Token {
    /// Keeps the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// 16 random bytes of the system.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Two lower-case digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads exactly two digits a byte.
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
    fn a_token_is_read_from_what_it_prints() {
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
        // From `openssl dgst -sha256 -mac HMAC`, of the three behind each other.
        let token = Token::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
        let proof = token.proof(Prover::Rank, b"0123456789abcdef", b"hello");
        assert_eq!(proof, PROOF);
        assert!(token.is_proven(Prover::Rank, b"0123456789abcdef", b"hello", &proof));
        assert_eq!(hex(&token.mesh_key(b"0123456789abcdef")), KEY);
    }

    const PROOF: &str = "0df73e95d5403b4ad4a1bdfdc2ee80b85c4a37a7a460242aaa36e8cebc961ded";
    const KEY: &str = "b3164603a55ae5e9596eb3b53e1a7d3d";

    #[test]
    fn another_token_prover_nonce_or_text_proves_nothing() {
        let (token, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
        let (rank, lead) = (Prover::Rank, Prover::Coordinator);
        let proof = token.proof(rank, &[1; 16], b"hello");
        assert!(!other.is_proven(rank, &[1; 16], b"hello", &proof));
        assert!(!token.is_proven(lead, &[1; 16], b"hello", &proof));
        assert!(!token.is_proven(rank, &[2; 16], b"hello", &proof));
        assert!(!token.is_proven(rank, &[1; 16], b"hellO", &proof));
        assert!(!token.is_proven(rank, &[1; 16], b"hello", &proof[2..]));
        assert!(!token.is_proven(rank, &[1; 16], b"hello", ""));
    }

    #[test]
    fn another_token_or_salt_makes_another_key() {
        let (token, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
        assert_eq!(token.mesh_key(&[1; 16]), token.clone().mesh_key(&[1; 16]));
        assert_ne!(token.mesh_key(&[1; 16]), other.mesh_key(&[1; 16]));
        assert_ne!(token.mesh_key(&[1; 16]), token.mesh_key(&[2; 16]));
        assert_ne!(token.mesh_key(&[1; 16]), [1; 16]);
    }
}
