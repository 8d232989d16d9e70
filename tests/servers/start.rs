//! Starts PostgreSQL and MariaDB for many test processes, and stops them when its standard input ends.
//!
//! Prints the variables that name them, a line about each database, and `ready`:
//!
//! ```text
//! IDEMPOTENT_TEST_POSTGRES=postgres://…
//! # PostgreSQL 15.18, started for this run
//! ready
//! ```

use std::io::Read as _;
use std::process::ExitCode;

use servers::{Kind, Server, sqlite_version};

#[tokio::main]
async fn main() -> ExitCode {
    // Both at once: each takes seconds.
    let (postgres, mariadb) = tokio::join!(Server::find_or_start(Kind::Postgres), Server::find_or_start(Kind::Mariadb));
    let result = match (postgres, mariadb) {
        (Ok(postgres), Ok(mariadb)) => serve(&[postgres, mariadb]).await,
        (postgres, mariadb) => {
            Err([postgres.err(), mariadb.err()].into_iter().flatten().collect::<Vec<_>>().join("\n"))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(servers: &[Server]) -> Result<(), String> {
    for server in servers {
        for (variable, value) in server.variables() {
            println!("{variable}={value}");
        }
        let version = server.version().await.map_err(|error| error.to_string())?;
        let whose = if server.is_private() { "started for this run" } else { "named by its variable" };
        println!("# {version}, {whose}");
    }
    let version = sqlite_version().await.map_err(|error| error.to_string())?;
    println!("# {version}, built into the tests\nready");
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.to_string())
}
