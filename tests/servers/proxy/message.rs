//! What clients send, as far as the proxy has to understand it.

use super::{mysql, postgres};

/// A piece of what the client sends, to be forwarded as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// What it asks for, if the server answers it.
    pub(super) request: Option<Request>,
}

/// Something that the server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The statement, or what else it is.
    pub(super) text: String,
    /// Asks for nothing but a sign of life.
    pub(super) ping: bool,
}

/// The client's side of one connection, cut into pieces.
#[derive(Debug)]
pub(super) enum Messages {
    Postgres(postgres::Messages),
    Mysql(mysql::Messages),
}

impl Messages {
    pub(super) const fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Takes what has arrived and gives the pieces that it completes.
    pub(super) fn sent(&mut self, bytes: &[u8]) -> Vec<Piece> {
        match self {
            Self::Postgres(messages) => messages.sent(bytes),
            Self::Mysql(messages) => messages.sent(bytes),
        }
    }

    /// Looks at the server's answer, which has the numbers of MySQL's prepared statements.
    pub(super) fn answered(&mut self, bytes: &[u8]) {
        if let Self::Mysql(messages) = self {
            messages.answered(bytes);
        }
    }
}

/// Takes `length` bytes off the front, once so many have arrived.
pub(super) fn take(buffer: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    (buffer.len() >= length).then(|| buffer.drain(..length).collect())
}

/// What stands before the first NUL, and what comes after it.
pub(super) fn cut_string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
