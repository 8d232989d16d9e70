//! A database server: private to the tests, or named by a variable.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use url::Url;

use crate::admin;
use crate::database::{Database, Kind, unique};
use crate::process::{Ended, Plan, Process};

/// A server that is not ready by then has failed. A cold disk takes most of it.
const START_TIMEOUT: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(20);

/// What a private server keeps of what it has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// Nothing: it is thrown away.
    Nothing,
    /// All of it if the server is killed. It is started again then.
    WhenKilled,
    /// All of it if the power fails, with the memory and the upkeep of a server in production.
    Always,
}

impl Keeps {
    /// What is added to the server's options.
    pub(crate) const fn choose(self, when_killed: &'static str, always: &'static str) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::WhenKilled => when_killed,
            Self::Always => always,
        }
    }
}

/// What the servers differ in.
pub(crate) struct Engine {
    pub(crate) kind: Kind,
    /// Names the address of a server to use instead of a private one.
    pub(crate) variable: &'static str,
    /// Names that server's log.
    pub(crate) log_variable: &'static str,
    /// What to do about a missing server.
    pub(crate) install: &'static str,
    /// How a private server is set up and run.
    pub(crate) plan: fn(port: u16, password: &str, keeps: Keeps) -> Option<Plan>,
    /// Address of the private server, without port and password.
    pub(crate) address: &'static str,
    /// What asks for its name and version, as one text.
    pub(crate) version: &'static str,
    /// What sets a new database up.
    pub(crate) create: fn(name: &str, collation: Option<&str>) -> String,
    /// What asks for the statements that close the connections to it, where `drop` does not do so.
    pub(crate) close: Option<fn(name: &str) -> String>,
    /// What removes it.
    pub(crate) drop: fn(name: &str) -> String,
    /// The part of the log that concerns one database.
    pub(crate) log_of: fn(log: &str, database: &str) -> String,
}

/// A PostgreSQL or MariaDB server. A private one is stopped and removed when this is dropped or the process ends.
pub struct Server {
    engine: &'static Engine,
    admin: Url,
    log: Option<PathBuf>,
    process: Option<Process>,
}

impl Server {
    /// The server that the kind's variable names, else a private one. Most tests share one:
    /// [`postgres()`](crate::postgres()), [`mariadb()`](crate::mariadb()).
    ///
    /// # Errors
    ///
    /// What is missing, and the command that installs it.
    pub async fn find_or_start(kind: Kind) -> Result<Self, String> {
        let engine = kind.engine()?;
        match std::env::var(engine.variable) {
            Ok(address) if !address.is_empty() => Self::given(engine, &address).await,
            _ => Self::start(engine, Keeps::Nothing).await,
        }
    }

    async fn given(engine: &'static Engine, address: &str) -> Result<Self, String> {
        let admin = Url::parse(address).map_err(|error| format!("{} is no URL: {error}", engine.variable))?;
        let log = std::env::var_os(engine.log_variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let server = Self { engine, admin, log, process: None };
        let reachable = server.version().await;
        reachable.map_err(|error| format!("no answer from the server that {} names: {error}", engine.variable))?;
        Ok(server)
    }

    /// A private server that can be [crashed](Self::crash): it keeps what it has acknowledged, and is started again.
    ///
    /// # Errors
    ///
    /// What is missing, and the command that installs it.
    pub async fn start_durable(kind: Kind) -> Result<Self, String> {
        Self::start(kind.engine()?, Keeps::WhenKilled).await
    }

    /// A private server that writes to the disk as one in production does, for measurements.
    ///
    /// # Errors
    ///
    /// What is missing, and the command that installs it.
    pub async fn start_as_in_production(kind: Kind) -> Result<Self, String> {
        Self::start(kind.engine()?, Keeps::Always).await
    }

    /// Kills the server with SIGKILL and waits until another one has recovered its data. Every connection breaks.
    ///
    /// # Panics
    ///
    /// Of a server that is not a private, durable one, and if it does not come back.
    pub async fn crash(&mut self) {
        let process = self.process.as_ref().expect("a private server");
        process.kill_server().expect("the server is killed");
        // Its old socket may still answer for a moment.
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let Err(error) = self.wait_until_ready().await {
            let log = self.log().unwrap_or_default();
            panic!(
                "{error}. The end of its log:\n{}",
                &log[log.floor_char_boundary(log.len().saturating_sub(4_000))..]
            );
        }
    }

    /// A private server, whatever the variables say.
    pub(crate) async fn start(engine: &'static Engine, keeps: Keeps) -> Result<Self, String> {
        let mut attempts = 3;
        loop {
            attempts -= 1;
            match Self::start_once(engine, keeps).await {
                // Somebody else has taken the port between our choice and the server's start.
                Err(error) if attempts > 0 && error.contains("in use") => {}
                result => return result,
            }
        }
    }

    async fn start_once(engine: &'static Engine, keeps: Keeps) -> Result<Self, String> {
        let name = engine.kind.name();
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        // Other users of this machine can reach the port, and an administrator's account runs programs.
        let password = unique();
        let missing = || {
            format!(
                "{name} is not installed and {} names no server: run `{}` or set the variable",
                engine.variable, engine.install
            )
        };
        let plan = (engine.plan)(port, &password, keeps).ok_or_else(missing)?;
        let process = Process::start(plan).map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{}: {error}", missing()),
            _ => format!("{name} does not start: {error}"),
        })?;
        let mut admin = Url::parse(engine.address).map_err(|error| error.to_string())?;
        let _ = admin.set_port(Some(port));
        let _ = admin.set_password(Some(&password));
        let mut server = Self { engine, admin, log: Some(process.log()), process: Some(process) };
        server.wait_until_ready().await?;
        Ok(server)
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let name = self.engine.kind.name();
        let start = Instant::now();
        loop {
            let Err(error) = self.version().await else { return Ok(()) };
            if let Some(Ended { last_lines }) = self.process.as_mut().and_then(Process::ended) {
                return Err(format!("{name} has ended while it started. The end of its log:\n{last_lines}"));
            }
            if start.elapsed() > START_TIMEOUT {
                return Err(format!("{name} is not ready after {START_TIMEOUT:?}: {error}"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Which server this is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.engine.kind
    }

    /// The address of the administrator's account.
    #[must_use]
    pub fn url(&self) -> &str {
        self.admin.as_str()
    }

    /// Whether the tests have started it themselves, in this process.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        self.process.is_some()
    }

    /// The variables that name this server to other processes.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let log = self.log.iter().map(|path| (self.engine.log_variable, path.display().to_string()));
        [(self.engine.variable, self.admin.to_string())].into_iter().chain(log).collect()
    }

    /// Name and version, as the server says them: `PostgreSQL 15.18 (Debian 15.18-0+deb12u1)`.
    ///
    /// # Errors
    ///
    /// The database's, where it does not answer.
    pub async fn version(&self) -> Result<String, sqlx::Error> {
        admin::ask(self.engine.kind, &self.admin, self.engine.version).await
    }

    /// An empty database, dropped with the value.
    ///
    /// On MariaDB its default collation, `utf8mb4_general_ci`, takes `K` for `k`, as most applications' does.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub async fn fresh_database(&self) -> Database {
        self.create_database(None).await
    }

    /// An empty database with a default collation of its own, in the server's spelling.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub async fn fresh_database_with_collation(&self, collation: &str) -> Database {
        self.create_database(Some(collation)).await
    }

    async fn create_database(&self, collation: Option<&str>) -> Database {
        let name = format!("idempotent_{}", unique());
        // What was logged before is somebody else's.
        let log = self.log.clone().map(|path| {
            let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            (path, length)
        });
        let create = (self.engine.create)(&name, collation);
        if let Err(error) = admin::execute(self.engine.kind, &self.admin, &create).await {
            panic!("{} does not create a database: {error}", self.engine.kind.name());
        }
        Database::on_server(self.engine, self.admin.clone(), name, log)
    }

    /// Everything in the server's log. Nothing, with a loud word about it, where the server was named without its log.
    #[must_use]
    pub fn log(&self) -> Option<String> {
        read_log(self.engine, self.log.as_ref().map(|path| (path, 0)))
    }
}

/// The log from a position on.
pub(crate) fn read_log(engine: &Engine, log: Option<(&PathBuf, u64)>) -> Option<String> {
    let Some((path, from)) = log else {
        // Not `eprintln!`, which the test harness shows for failed tests only.
        let name = engine.kind.name();
        let _ = writeln!(std::io::stderr(), "SKIPPED: {} does not name the log of {name}", engine.log_variable);
        return None;
    };
    match fs::read(path) {
        Ok(bytes) => {
            let new = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or(&bytes);
            Some(String::from_utf8_lossy(new).into_owned())
        }
        Err(error) => panic!("the log of {}, {}, cannot be read: {error}", engine.kind.name(), path.display()),
    }
}

pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mariadb, postgres};

    #[tokio::test]
    async fn a_missing_server_is_an_error_that_says_what_to_install() {
        for (engine, package) in [(&postgres::ENGINE, "postgresql"), (&mariadb::ENGINE, "mariadb-server")] {
            let missing = Box::leak(Box::new(Engine { plan: |_, _, _| None, ..*engine }));
            let error = Server::start(missing, Keeps::Nothing).await.err().unwrap_or_default();
            assert!(error.contains(&format!("`apt-get install -y {package}`")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_start_is_an_error_with_the_end_of_its_log() {
        let plan = |port, password: &str, keeps| {
            let plan = (postgres::ENGINE.plan)(port, password, keeps)?;
            Some(Plan { serve: "echo 'out of luck'", ..plan })
        };
        let broken = Box::leak(Box::new(Engine { plan, ..postgres::ENGINE }));
        let error = Server::start(broken, Keeps::Nothing).await.err().unwrap_or_default();
        assert!(error.contains("out of luck"), "{error}");
    }
}
