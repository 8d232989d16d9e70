//! MySQL's packets. A request is a packet with the sequence number 0, which the handshake's do not have.
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>

use std::collections::HashMap;

use super::message::{Piece, Request, take, text};

const HEADER: usize = 4;
/// A packet of this length is continued in the next one.
const LONGEST: usize = 0x00ff_ffff;

const QUIT: u8 = 0x01;
const QUERY: u8 = 0x03;
const PING: u8 = 0x0e;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const SEND_LONG_DATA: u8 = 0x18;
const CLOSE_STATEMENT: u8 = 0x19;

#[derive(Debug, Default)]
pub(super) struct Messages {
    buffer: Vec<u8>,
    /// The first packets of one that is continued.
    pending: Vec<u8>,
    /// Prepared statements by number.
    statements: HashMap<[u8; 4], String>,
    /// A statement whose number the next answer tells.
    preparing: Option<String>,
}

impl Messages {
    pub(super) fn sent(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.buffer.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        while let Some(&[a, b, c, _]) = self.buffer.first_chunk() {
            let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
            let Some(packet) = take(&mut self.buffer, HEADER + length) else { break };
            self.pending.extend(packet);
            if length < LONGEST {
                let bytes = std::mem::take(&mut self.pending);
                let request = if bytes[3] == 0 { self.read(&bytes[HEADER..]) } else { None };
                pieces.push(Piece { bytes, request });
            }
        }
        pieces
    }

    fn read(&mut self, body: &[u8]) -> Option<Request> {
        let (command, rest) = body.split_first()?;
        let text = match *command {
            // Never answered.
            QUIT | SEND_LONG_DATA | CLOSE_STATEMENT => return None,
            QUERY => text(rest),
            PREPARE => {
                let sql = text(rest);
                self.preparing = Some(sql.clone());
                format!("prepare {sql}")
            }
            EXECUTE => {
                let sql = rest.first_chunk().and_then(|number| self.statements.get(number));
                format!("execute {}", sql.map_or("?", String::as_str))
            }
            PING => "ping".to_owned(),
            other => format!("command {other:#04x}"),
        };
        Some(Request { text, ping: *command == PING })
    }

    /// The answer to PREPARE begins with header, 0 for success, and the statement's number.
    pub(super) fn answered(&mut self, bytes: &[u8]) {
        if let Some(sql) = self.preparing.take()
            && let Some([0, number @ ..]) = bytes.get(HEADER..).and_then(<[u8]>::first_chunk::<5>)
        {
            self.statements.insert(*number, sql);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).expect("a short body").to_le_bytes();
        [&length[..3], &[sequence], body].concat()
    }

    #[test]
    fn requests_are_recognised_however_the_bytes_arrive() {
        let before = [packet(1, b"handshake"), packet(0, b"\x03BEGIN"), packet(0, b"\x16SELECT 1")].concat();
        let after =
            [packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0"), packet(0, b"\x19\x07\0\0\0"), packet(0, b"\x0e")].concat();
        for size in [1, 3, 100] {
            let mut messages = Messages::default();
            let mut pieces: Vec<_> = before.chunks(size).flat_map(|bytes| messages.sent(bytes)).collect();
            messages.answered(&packet(1, b"\0\x07\0\0\0\0\0\0\0\0\0\0"));
            pieces.extend(after.chunks(size).flat_map(|bytes| messages.sent(bytes)));
            let bytes: Vec<_> = pieces.iter().flat_map(|piece| piece.bytes.clone()).collect();
            assert_eq!(bytes, [before.clone(), after.clone()].concat());
            let texts: Vec<_> = pieces.iter().map(|piece| piece.request.as_ref().map(|r| r.text.as_str())).collect();
            let expected =
                [None, Some("BEGIN"), Some("prepare SELECT 1"), Some("execute SELECT 1"), None, Some("ping")];
            assert_eq!(texts, expected);
        }
    }

    #[test]
    fn a_request_longer_than_a_packet_is_one() {
        let mut long = vec![b' '; LONGEST];
        long[..5].copy_from_slice(b"\x03BULK");
        let bytes = [packet(0, &long), packet(1, b"end")].concat();
        let pieces = Messages::default().sent(&bytes);
        assert_eq!(pieces.len(), 1);
        assert!(pieces[0].request.as_ref().is_some_and(|request| request.text.starts_with("BULK")));
    }
}
