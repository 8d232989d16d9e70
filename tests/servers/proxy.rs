//! A proxy between a test and a server, which counts round trips and loses connections at a chosen moment.

mod frames;
mod gate;
mod message;
mod mysql;
mod postgres;
mod relay;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

use gate::Gate;
use message::{Messages, Request};

/// A proxy for one database, on a free port of this machine.
///
/// It runs in the test's runtime, so it stands still while the test blocks the thread. Dropped, it closes its connections.
///
/// ```no_run
/// # async fn example() -> Result<(), sqlx::Error> {
/// let database = servers::Kind::Postgres.fresh_database().await;
/// let proxy = servers::Proxy::start(database.url()).await;
/// let pool = sqlx::PgPool::connect(proxy.url()).await?;
/// proxy.reset();
/// let (done, waited) = proxy.round_trips_of(sqlx::query("SELECT 1").execute(&pool)).await;
/// done?;
/// assert_eq!(waited, 2, "prepare and execute, not {:?}", proxy.log());
/// proxy.cut(servers::Cut::after("COMMIT"));
/// # Ok(())
/// # }
/// ```
pub struct Proxy {
    shared: Arc<Shared>,
    url: String,
    accepting: JoinHandle<()>,
}

/// When a proxy closes both sides of a connection, or [stalls](Self::stalling): once.
#[derive(Clone, Debug)]
pub struct Cut {
    point: Point,
    stalls: bool,
}

#[derive(Clone, Debug)]
enum Point {
    Request {
        which: Which,
        forward: bool,
    },
    /// So many messages of the protocol still pass from the client to the server, or from the server to the client.
    Sent(usize),
    Received(usize),
}

/// One of the requests that come from now on; pings do not count.
#[derive(Clone, Debug)]
pub enum Which {
    /// The n-th on all connections; the next one is 1.
    Number(usize),
    /// The first whose entry in [`Proxy::log`] contains this.
    Holding(String),
}

impl From<usize> for Which {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Which {
    fn from(text: &str) -> Self {
        Self::Holding(text.to_owned())
    }
}

impl Cut {
    /// Instead of forwarding the request: the server never sees it.
    #[must_use]
    pub fn before(which: impl Into<Which>) -> Self {
        Self::at(Point::Request { which: which.into(), forward: false })
    }

    /// Once the server has carried the request out: its reply is lost.
    #[must_use]
    pub fn after(which: impl Into<Which>) -> Self {
        Self::at(Point::Request { which: which.into(), forward: true })
    }

    /// Once so many messages of the protocol, of which a request has one or more, have passed to the server. Pings do not
    /// count.
    #[must_use]
    pub const fn after_sent(messages: usize) -> Self {
        Self::at(Point::Sent(messages))
    }

    /// Once the client has got so many messages of the protocol, of which a reply has one or more. The server carries out
    /// what it was sent.
    #[must_use]
    pub const fn after_received(messages: usize) -> Self {
        Self::at(Point::Received(messages))
    }

    const fn at(point: Point) -> Self {
        Self { point, stalls: false }
    }

    /// Nothing passes any more, and nobody is told: both sides stay open until the client closes its own.
    #[must_use]
    pub const fn stalling(mut self) -> Self {
        self.stalls = true;
        self
    }
}

/// What the proxy and its connections know.
#[derive(Default)]
struct Shared {
    gate: Gate,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Vec<String>,
    round_trips: usize,
    cut: Option<Cut>,
}

/// How a connection ends at a planned cut.
#[derive(Clone, Copy)]
enum Break {
    Close,
    Stall,
}

/// What becomes of a request.
enum Fate {
    Forward,
    /// So many of its messages pass.
    Break(usize, Break),
}

impl Cut {
    const fn how(&self) -> Break {
        if self.stalls { Break::Stall } else { Break::Close }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of something that has so many messages.
    fn decide(&self, request: Option<&Request>, messages: usize) -> Fate {
        let mut state = self.state();
        let counts = request.is_some_and(|request| !request.ping);
        if let Some(request) = request {
            state.log.push(request.text.clone());
            state.round_trips += usize::from(counts);
        }
        let is_ping = request.is_some_and(|request| request.ping);
        let passing = match state.cut.as_mut().map(|cut| &mut cut.point) {
            Some(Point::Sent(left)) if !is_ping => pass(left, messages),
            Some(Point::Request { which, forward }) if counts => {
                let hit = match which {
                    Which::Number(left) => {
                        *left = left.saturating_sub(1);
                        *left == 0
                    }
                    Which::Holding(text) => request.is_some_and(|request| request.text.contains(text.as_str())),
                };
                hit.then_some(if *forward { messages } else { 0 })
            }
            _ => None,
        };
        match passing.and_then(|passing| Some((passing, state.cut.take()?))) {
            Some((passing, cut)) => Fate::Break(passing, cut.how()),
            None => Fate::Forward,
        }
    }

    /// What becomes of so many messages of the server.
    fn decide_reply(&self, messages: usize) -> Fate {
        let mut state = self.state();
        let passing = match state.cut.as_mut().map(|cut| &mut cut.point) {
            Some(Point::Received(left)) => pass(left, messages),
            _ => None,
        };
        match passing.and_then(|passing| Some((passing, state.cut.take()?))) {
            Some((passing, cut)) => Fate::Break(passing, cut.how()),
            None => Fate::Forward,
        }
    }
}

/// How many of the messages still pass, if not all do.
fn pass(left: &mut usize, messages: usize) -> Option<usize> {
    let passing = (*left < messages).then_some(*left);
    *left = left.saturating_sub(messages);
    passing
}

impl Proxy {
    /// A proxy for the server and database of this URL.
    ///
    /// # Panics
    ///
    /// For a URL without a host, and without a free port.
    pub async fn start(upstream: &str) -> Self {
        match Self::try_start(upstream).await {
            Ok(proxy) => proxy,
            Err(error) => panic!("no proxy for {upstream}: {error}"),
        }
    }

    async fn try_start(upstream: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut url = Url::parse(upstream)?;
        let is_postgres = url.scheme().starts_with("postgres");
        let host = url.host_str().ok_or("it has no host")?.to_owned();
        let port = url.port().unwrap_or(if is_postgres { 5432 } else { 3306 });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        url.set_host(Some("127.0.0.1"))?;
        url.set_port(Some(listener.local_addr()?.port())).map_err(|()| "it takes no port")?;
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                // Dropped with this task, and the connections with it.
                let mut connections = JoinSet::new();
                while let Ok((client, _)) = listener.accept().await {
                    let messages = if is_postgres {
                        Messages::Postgres(postgres::Messages::default())
                    } else {
                        Messages::Mysql(mysql::Messages::default())
                    };
                    connections.spawn(relay::run(Arc::clone(&shared), messages, client, (host.clone(), port)));
                }
            }
        });
        Ok(Self { shared, url: url.into(), accepting })
    }

    /// The address of the database through this proxy, for sqlx.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How many requests were made since the last [`reset`](Self::reset), on all connections. Pings, and what the
    /// server does not answer, do not count.
    ///
    /// A client need not wait for each: sqlx leaves the reply to a dropped transaction's ROLLBACK for later.
    /// [`round_trips_of`](Self::round_trips_of) counts what is waited for.
    #[must_use]
    pub fn round_trips(&self) -> usize {
        self.shared.state().round_trips
    }

    /// The requests since the last [`reset`](Self::reset): a statement as it is, where it was sent as text; after
    /// `prepare` or `execute`, where it was not; `ping`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.shared.state().log.clone()
    }

    /// Begins a new count and a new log.
    pub fn reset(&self) {
        let mut state = self.shared.state();
        state.log.clear();
        state.round_trips = 0;
    }

    /// Runs a future and counts how often it waits for a reply of the server, by holding each reply back until the
    /// future gets no further without it. Each takes 50 ms. Replies that arrive together are waited for once.
    ///
    /// Nothing else may use the proxy meanwhile.
    pub async fn round_trips_of<F: Future>(&self, future: F) -> (F::Output, usize) {
        let measured = self.shared.gate.measure();
        let mut future = pin!(future);
        let mut waits = 0;
        loop {
            tokio::select! {
                biased;
                output = &mut future => return (output, waits),
                () = measured.stuck() => {
                    waits += 1;
                    measured.let_pass();
                }
            }
        }
    }

    /// Closes one connection at this point, and forgets an earlier plan.
    pub fn cut(&self, cut: Cut) {
        self.shared.state().cut = Some(cut);
    }

    /// Whether a planned cut has not happened yet.
    #[must_use]
    pub fn is_cut_pending(&self) -> bool {
        self.shared.state().cut.is_some()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
