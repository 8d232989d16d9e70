//! Databases of one test's own.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

use tempfile::TempDir;
use url::Url;

use crate::server::{Engine, read_log};
use crate::{admin, mariadb, postgres, sqlite};

/// The databases that the tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file in a temporary folder.
    Sqlite,
    /// A database on [`postgres()`](crate::postgres()).
    Postgres,
    /// A database on [`mariadb()`](crate::mariadb()), or on the MySQL that its variable names.
    Mariadb,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Mariadb];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
        }
    }

    pub(crate) fn engine(self) -> Result<&'static Engine, String> {
        match self {
            Self::Sqlite => Err("SQLite is a library and has no server".to_owned()),
            Self::Postgres => Ok(&postgres::ENGINE),
            Self::Mariadb => Ok(&mariadb::ENGINE),
        }
    }

    /// An empty database, dropped with the value.
    ///
    /// # Panics
    ///
    /// Without its server, naming the command that installs it.
    pub async fn fresh_database(self) -> Database {
        match self {
            Self::Sqlite => sqlite::fresh_database(),
            Self::Postgres => crate::postgres().await.fresh_database().await,
            Self::Mariadb => crate::mariadb().await.fresh_database().await,
        }
    }
}

/// An empty database of one test's own, dropped with this value; connections that are still open are closed.
#[must_use = "it is dropped at once"]
pub struct Database {
    kind: Kind,
    name: String,
    url: String,
    home: Home,
}

/// What is needed for taking it away again.
enum Home {
    Folder { _folder: TempDir },
    Server { engine: &'static Engine, admin: Url, log: Option<(PathBuf, u64)> },
}

impl Database {
    pub(crate) fn in_folder(folder: TempDir) -> Self {
        let name = folder.path().join("test.sqlite").display().to_string();
        let url = format!("sqlite://{name}?mode=rwc");
        Self { kind: Kind::Sqlite, name, url, home: Home::Folder { _folder: folder } }
    }

    /// `log` is where the log stood before the database was made.
    pub(crate) fn on_server(engine: &'static Engine, admin: Url, name: String, log: Option<(PathBuf, u64)>) -> Self {
        let mut url = admin.clone();
        url.set_path(&name);
        Self { kind: engine.kind, name, url: url.into(), home: Home::Server { engine, admin, log } }
    }

    /// Which database this is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The address, for sqlx.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name on its server, or the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs statements on a connection of their own and gives the texts in the first column of their rows.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn ask(&self, statements: &str) -> Result<Vec<String>, sqlx::Error> {
        let url = Url::parse(&self.url).map_err(|error| sqlx::Error::Configuration(error.into()))?;
        admin::run(self.kind, &url, statements).await
    }

    /// What the server has logged about this database: on MariaDB, which does not say which database it means,
    /// everything since this one was made. SQLite keeps no log: empty.
    ///
    /// `None`, with a loud word about it, where the server was named without its log.
    ///
    /// # Panics
    ///
    /// If the log cannot be read.
    #[must_use]
    pub fn log(&self) -> Option<String> {
        let Home::Server { engine, log, .. } = &self.home else { return Some(String::new()) };
        let log = read_log(engine, log.as_ref().map(|(path, from)| (path, *from)))?;
        Some((engine.log_of)(&log, &self.name))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.name).finish()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Home::Server { engine, admin, .. } = &self.home else { return };
        // Not a reason to fail a test: what is left behind is empty, and on a private server goes with it.
        if let Err(error) = admin::drop_and_wait(engine, admin.clone(), &self.name) {
            eprintln!("{self:?} was not dropped: {error}");
        }
    }
}

/// A name, or a password, that nobody else has: 64 random bits, from the hasher's seed.
pub(crate) fn unique() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}
