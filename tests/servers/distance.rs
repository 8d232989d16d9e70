//! A server that is further away than it is.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

/// A proxy that holds every byte back for a while, in both directions, without limiting how many are on their way.
#[derive(Debug)]
pub struct Distance {
    url: String,
    accepting: JoinHandle<()>,
}

impl Distance {
    /// One for the server and database of this URL.
    ///
    /// # Panics
    ///
    /// For a URL without a host or port, and without a free port.
    pub async fn start(upstream: &str, each_way: Duration) -> Self {
        let mut url = Url::parse(upstream).expect("a URL");
        let server = (url.host_str().expect("a host").to_owned(), url.port().expect("a port"));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        url.set_host(Some("127.0.0.1")).expect("a URL with a host");
        url.set_port(Some(port)).expect("a URL with a port");
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and the connections with it.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, server.clone(), each_way));
            }
        });
        Self { url: url.into(), accepting }
    }

    /// The address of the database from here, for sqlx.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Distance {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Until either side ends, which ends the other.
async fn relay(client: TcpStream, server: (String, u16), each_way: Duration) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        end = carry(from_client, to_server, each_way) => end,
        end = carry(from_server, to_client, each_way) => end,
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, after: Duration) -> io::Result<()> {
    let (sender, mut on_the_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return io::Result::Ok(());
            }
            let _ = sender.send((Instant::now() + after, buffer[..length].to_vec()));
        }
    };
    let write = async {
        while let Some((due, bytes)) = on_the_way.recv().await {
            // tokio's timer counts milliseconds, and is late by one on average.
            let rest = due.saturating_duration_since(Instant::now());
            tokio::task::spawn_blocking(move || std::thread::sleep(rest)).await.map_err(io::Error::other)?;
            to.write_all(&bytes).await?;
        }
        Ok(())
    };
    tokio::select! {
        end = read => end,
        end = write => end,
    }
}
