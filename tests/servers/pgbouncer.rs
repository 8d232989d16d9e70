//! PgBouncer in transaction mode, between a test and PostgreSQL.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};
use url::Url;

use crate::process::{Ended, Plan, Process, find_program};
use crate::server::free_port;

const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Whoever comes gets in: it is private, and ends with the test.
const PREPARE: &str = r"
cat >pgbouncer.ini <<END
[databases]
$name = $upstream
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = $connections
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
END
";

/// A PgBouncer for one database, which many connections of clients share few connections of the server through.
pub struct PgBouncer {
    url: String,
    _process: Process,
}

impl PgBouncer {
    /// A PgBouncer in front of this database, with so many connections to the server.
    ///
    /// # Panics
    ///
    /// If it is not installed, naming the command that installs it, or does not start.
    pub async fn start(database: &str, connections: u32) -> Self {
        match Self::try_start(database, connections).await {
            Ok(bouncer) => bouncer,
            Err(error) => panic!("no PgBouncer: {error}"),
        }
    }

    async fn try_start(database: &str, connections: u32) -> Result<Self, String> {
        let mut url = Url::parse(database).map_err(|error| error.to_string())?;
        let port = free_port().map_err(|error| error.to_string())?;
        let name = url.path().trim_start_matches('/').to_owned();
        let password = url.password().map_or_else(String::new, |password| format!(" password={password}"));
        let upstream = format!(
            "host={} port={} user={}{password}",
            url.host_str().unwrap_or("127.0.0.1"),
            url.port().unwrap_or(5432),
            url.username()
        );
        let folders = ["/usr/sbin".into(), "/usr/local/sbin".into()];
        let program = find_program(&["pgbouncer"], &folders).ok_or("run `apt-get install -y pgbouncer`")?;
        let plan = Plan {
            name: "pgbouncer",
            account: "postgres",
            environment: vec![
                ("bouncer", program.into()),
                ("name", name.into()),
                ("upstream", upstream.into()),
                ("port", port.to_string().into()),
                ("connections", connections.to_string().into()),
            ],
            prepare: PREPARE,
            serve: r#"exec "$bouncer" pgbouncer.ini"#,
            stop_signal: "KILL",
            restarts: false,
        };
        let mut process = Process::start(plan).map_err(|error| error.to_string())?;
        url.set_host(Some("127.0.0.1")).map_err(|error| error.to_string())?;
        let _ = url.set_port(Some(port));
        let _ = url.set_password(None);
        let start = Instant::now();
        loop {
            match PgConnection::connect(url.as_str()).await {
                Ok(connection) => {
                    let _ = connection.close().await;
                    return Ok(Self { url: url.into(), _process: process });
                }
                Err(error) if start.elapsed() > START_TIMEOUT => return Err(error.to_string()),
                Err(_) => {}
            }
            if let Some(Ended { last_lines }) = process.ended() {
                return Err(last_lines);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The address of the database through it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}
