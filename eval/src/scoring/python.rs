//! HumanEval's pass@1: the program that an answer makes is run, and passes or not (Chen et al., 2021).
//!
//! The limits on time and memory catch programs that are wrong, not programs that mean harm: there is no sandbox.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sightdraft_core::{Error, Result};
use sightdraft_datasets::CodeTest;

/// Time for one program, the interpreter's start included.
const SECONDS: u64 = 10;

/// Exit code of a program that ran to its end: one that a program leaves with `sys.exit()` or `os._exit(0)` is another.
const PASSED: i32 = 42;

/// Limits memory (1 GiB), time and the size of files, then runs the program on standard input.
const RUNNER: &str = "
import os, resource, sys
for limit, most in ((resource.RLIMIT_AS, 1 << 30), (resource.RLIMIT_CPU, int(sys.argv[1])), (resource.RLIMIT_FSIZE, 1 << 20)):
    resource.setrlimit(limit, (most, most))
program = sys.stdin.read()
exec(compile(program, 'answer', 'exec'), {'__name__': '__main__'})
os._exit(int(sys.argv[2]))
";

/// An interpreter that may run what a model wrote.
#[derive(Debug, Clone)]
pub struct Python {
    path: PathBuf,
    seconds: u64,
}

impl Python {
    /// The python3 of this machine.
    ///
    /// # Errors
    /// None that can limit memory: it is missing, or this is no Unix.
    pub fn find() -> Result<Self> {
        let found = Command::new("python3").args(["-I", "-c", "import resource, sys; print(sys.executable)"]).output();
        let lacks = |found: String| {
            let mend = "install python3, or leave --execute out";
            Error::invalid("--execute", "a python3 with the module resource", found, mend)
        };
        match found {
            Err(error) => Err(lacks(error.to_string())),
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().into();
                Ok(Self { path, seconds: SECONDS })
            }
            Ok(output) => Err(lacks(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "))),
        }
    }

    /// Whether `answer` solves the problem: its code, run with the problem's tests, comes to its end in time. A machine that
    /// cannot start the interpreter any more counts as a failure of the answer.
    pub fn passes(&self, problem: &CodeTest, answer: &str) -> bool {
        let program = format!("{}\n\n{}\n\ncheck({})\n", program(problem, answer), problem.test, problem.entry_point);
        self.run(&program).unwrap_or(false)
    }

    fn run(&self, program: &str) -> std::io::Result<bool> {
        let folder = tempfile::tempdir()?;
        let mut child = Command::new(&self.path)
            .args(["-I", "-c", RUNNER, &self.seconds.to_string(), &PASSED.to_string()])
            // The names of tokens and keys in the environment are none of a model's business.
            .env_clear()
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // An interpreter that is gone already has failed; its exit code tells.
            let _ = input.write_all(program.as_bytes());
        }
        wait(&mut child, Duration::from_secs(self.seconds))
    }
}

/// Waits for the child's end, or ends it when `most` is over.
fn wait(child: &mut Child, most: Duration) -> std::io::Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code() == Some(PASSED));
        }
        if start.elapsed() > most {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program that `answer` makes of the problem's code: the fenced block that defines the function (else the first block, else
/// the whole answer), behind the prompt, whose imports and helpers it may use.
fn program(problem: &CodeTest, answer: &str) -> String {
    let definition = format!("def {}(", problem.entry_point);
    let blocks = fenced(answer);
    let defining = blocks.iter().find(|block| block.contains(&definition));
    let code = defining.or(blocks.first()).map_or(answer, String::as_str);
    if code.contains(&definition) {
        // The prompt's own function has a body, its description; the answer's takes its name.
        return format!("{}\n{code}", problem.prompt);
    }
    // A continuation of the function's body.
    let starts_indented = code.lines().find(|line| !line.trim().is_empty()).is_some_and(|l| l.starts_with([' ', '\t']));
    match starts_indented {
        true => format!("{}{code}", problem.prompt),
        false => code.lines().fold(problem.prompt.clone(), |text, line| text + "    " + line + "\n"),
    }
}

/// The contents of Markdown's fenced blocks; the last may be cut off by the answer's end.
fn fenced(answer: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in answer.lines() {
        let fence = line.trim_start().starts_with("```");
        match &mut open {
            Some(block) if !fence => {
                block.push_str(line);
                block.push('\n');
            }
            None if fence => open = Some(String::new()),
            _ => blocks.extend(open.take()),
        }
    }
    blocks.extend(open);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> CodeTest {
        CodeTest {
            prompt: "import math\n\ndef area(r):\n    \"\"\"The area of a circle.\"\"\"\n".into(),
            test: "def check(candidate):\n    assert abs(candidate(1) - math.pi) < 1e-9\n".into(),
            entry_point: "area".into(),
        }
    }

    #[test]
    fn functions_blocks_and_continuations_become_programs() {
        let body = "    return math.pi * r * r\n";
        let function = format!("def area(r):\n{body}");
        for answer in [
            body.to_string(),
            "return math.pi * r * r\n".to_string(),
            function.clone(),
            format!("Sure!\n```sh\npip install\n```\nand\n```python\n{function}```\nDone."),
            format!("```\n{function}"),
        ] {
            let program = program(&problem(), &answer);
            assert!(program.starts_with("import math\n\ndef area(r):\n    \"\"\""), "{program}");
            assert!(program.trim_end().ends_with("\n    return math.pi * r * r"), "{program}");
        }
    }

    #[test]
    fn right_programs_pass_and_others_do_not() {
        let Ok(python) = Python::find() else { return println!("skipped: no python3 here") };
        let python = Python { seconds: 2, ..python };
        assert!(python.passes(&problem(), "    return math.pi * r * r"));
        for wrong in [
            "    return 3 * r * r",
            "    return",
            "I am sorry.",
            "    import sys\n    sys.exit(0)",
            "    import os\n    os._exit(0)",
            "    while True: pass",
            "    import time\n    time.sleep(60)",
            "    x = bytearray(1 << 34)\n    return math.pi",
        ] {
            assert!(!python.passes(&problem(), wrong), "{wrong}");
        }
    }
}
