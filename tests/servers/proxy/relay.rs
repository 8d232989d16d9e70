//! Carries one connection's bytes in both directions.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::frames::{Frames, split};
use super::message::{Messages, Piece};
use super::{Break, Fate, Shared};

/// How long a server may take to end a session whose client has gone.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const BUFFER: usize = 16 * 1024;

/// Why the client's side has ended.
enum End {
    /// It was closed, or broke.
    Closed,
    /// It is to be broken.
    Broken(Break),
}

/// Relays until either side ends, or until the cut. An error on either side ends both, so it needs no report.
pub(super) async fn run(shared: Arc<Shared>, messages: Messages, mut client: TcpStream, server: (String, u16)) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let messages = Mutex::new(messages);
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let end = tokio::select! {
        end = requests(&shared, &messages, &mut from_client, &mut to_server) => end,
        end = replies(&shared, &messages, &mut from_server, &mut to_client) => end,
    };
    if let Ok(End::Broken(how)) = end {
        if matches!(how, Break::Stall) {
            // Until the client has given up.
            let _ = drain(&mut from_client).await;
        }
        // The server carries out what it was sent, finds the connection at its end and closes the session. Only then
        // does the client learn of it, so that a test finds the server's work done.
        let _ = to_server.shutdown().await;
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain(&mut from_server)).await;
    }
}

async fn requests(
    shared: &Shared,
    messages: &Mutex<Messages>,
    client: &mut ReadHalf<'_>,
    server: &mut WriteHalf<'_>,
) -> io::Result<End> {
    let is_postgres = messages.lock().unwrap_or_else(PoisonError::into_inner).is_postgres();
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = client.read(&mut buffer).await?;
        if length == 0 {
            return Ok(End::Closed);
        }
        let pieces = messages.lock().unwrap_or_else(PoisonError::into_inner).sent(&buffer[..length]);
        for Piece { bytes, request } in pieces {
            let parts = split(is_postgres, &bytes);
            let fate = shared.decide(request.as_ref(), parts.len());
            if let Fate::Break(passing, how) = fate {
                server.write_all(&parts[..passing].concat()).await?;
                return Ok(End::Broken(how));
            }
            if request.is_some() {
                shared.gate.requested();
            }
            server.write_all(&bytes).await?;
        }
    }
}

async fn replies(
    shared: &Shared,
    messages: &Mutex<Messages>,
    server: &mut ReadHalf<'_>,
    client: &mut WriteHalf<'_>,
) -> io::Result<End> {
    let mut frames = Frames::new(messages.lock().unwrap_or_else(PoisonError::into_inner).is_postgres());
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = server.read(&mut buffer).await?;
        if length == 0 {
            return Ok(End::Closed);
        }
        messages.lock().unwrap_or_else(PoisonError::into_inner).answered(&buffer[..length]);
        let parts = frames.arrived(&buffer[..length]);
        if parts.is_empty() {
            continue;
        }
        if let Fate::Break(passing, how) = shared.decide_reply(parts.len()) {
            client.write_all(&parts[..passing].concat()).await?;
            return Ok(End::Broken(how));
        }
        shared.gate.replied().await;
        client.write_all(&parts.concat()).await?;
    }
}

async fn drain(server: &mut ReadHalf<'_>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    while server.read(&mut buffer).await? > 0 {}
    Ok(())
}
