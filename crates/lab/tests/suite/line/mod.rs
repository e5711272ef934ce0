//! A command line of one command, for tests that give its arguments as text.

use clap::{Args, Parser};

#[derive(Parser)]
pub struct Line<A: Args> {
    #[command(flatten)]
    pub args: A,
}
