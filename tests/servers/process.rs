//! Server processes that do not outlive the process that started them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// How a private server is set up and run.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// The account that runs it where the tests are root, which servers refuse.
    pub(crate) account: &'static str,
    /// Variables of the scripts, beside `folder`, where they run.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Shell text that makes the data directory; fails if it cannot.
    pub(crate) prepare: &'static str,
    /// Shell text that becomes the server.
    pub(crate) serve: &'static str,
    /// What ends the server at once.
    pub(crate) stop_signal: &'static str,
    /// Whether it is started again when it ends by itself.
    pub(crate) restarts: bool,
}

/// A server in a temporary folder. It ends, and the folder goes, when this is dropped or this process has gone. (In a
/// `TMPDIR` in which the server's account may not remove it, a killed process leaves the folder behind, empty.)
pub(crate) struct Process {
    supervisor: Child,
    folder: PathBuf,
}

/// A server that has ended by itself.
pub(crate) struct Ended {
    pub(crate) last_lines: String,
}

/// Runs beside the server, as the same user. Its standard input is a pipe whose other end nobody but this process
/// holds: reading ends when this process does, by whatever cause, and then the server is stopped. Its standard output
/// gets the end of the log, which goes with the folder.
const SUPERVISE: &str = r#"
cd "$folder" || exit
exec 3<&0 </dev/null
if prepare >log 2>&1; then
    while :; do
        serve >>log 2>&1 3<&- &
        running=$! # not `server`, which is a variable of a plan
        echo "$running" >pid.new && mv pid.new server.pid
        { read -r _; : >stopped; kill -s "$stop_signal" "$running"; } <&3 &
        watch=$!
        wait "$running"
        kill "$watch"
        if [ -e stopped ] || [ "$restarts" != true ]; then break; fi
        # What the killed one has left behind may need a moment to go.
        sleep 0.1
    done
fi
tail -n 60 log
cd / && rm -rf "$folder"
"#;

impl Process {
    pub(crate) fn start(plan: Plan) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("idempotent-{}-", plan.name)).tempdir()?;
        let script = format!("prepare() {{\n{}\n}}\nserve() {{\n{}\n}}\n{SUPERVISE}", plan.prepare, plan.serve);
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, "servers"])
            .envs(plan.environment)
            .env("folder", folder.path())
            .env("stop_signal", plan.stop_signal)
            .env("restarts", plan.restarts.to_string())
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal is for the tests; the supervisor is to clean up after them.
            .process_group(0);
        if id(&["-u"])? == 0 {
            let (user, group) = (id(&["-u", plan.account])?, id(&["-g", plan.account])?);
            chown(folder.path(), Some(user), Some(group))?;
            command.uid(user).gid(group);
        }
        let supervisor = command.spawn()?;
        Ok(Self { supervisor, folder: folder.keep() })
    }

    /// The file that the server's messages go to.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Kills the server, not its supervisor, with a signal that it cannot answer.
    pub(crate) fn kill_server(&self) -> io::Result<()> {
        let number = fs::read_to_string(self.folder.join("server.pid"))?;
        let kill = format!("kill -s KILL {}", number.trim());
        Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status().map(drop)
    }

    /// Whether it has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        self.supervisor.try_wait().ok()??;
        let mut last_lines = String::new();
        let _ = self.supervisor.stdout.as_mut()?.read_to_string(&mut last_lines);
        Some(Ended { last_lines })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
        // Gone already, unless the supervisor could not even begin.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The first of the names that is a file in PATH, else in one of the folders.
pub(crate) fn find_program(names: &[&str], folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(folders.iter().cloned());
    folders.flat_map(|folder| names.iter().map(move |name| folder.join(name))).find(|candidate| candidate.is_file())
}

/// A number from the command `id`: the standard library gives no user ids.
fn id<S: AsRef<OsStr>>(arguments: &[S]) -> io::Result<u32> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // No number: there is no such account.
    text.trim().parse().map_err(|_| io::ErrorKind::NotFound.into())
}
