use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::admin::{AdminChoice, AdminReport};
use super::measures::TopReport;
use super::source::{StatsSample, StatsSource};
use super::view::{Looks, TopView};
use crate::Error;

/// How long a key may wait while nothing else happens.
const NAP: Duration = Duration::from_millis(100);

/// Shows the server until the user quits. The terminal is given back however this ends, also by a panic.
pub fn run(source: StatsSource, admin: AdminChoice, first: StatsSample, interval: Duration) -> Result<(), Error> {
    let target = source.target().to_owned();
    let (sender, looks) = channel();
    // A thread of its own, so that a server that hangs does not hold up the keys. It ends with the process.
    thread::spawn(move || watch(source, &admin, interval, &sender));
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &target, first, interval, &looks);
    ratatui::try_restore()?;
    shown
}

/// The result of one look.
type Look = Result<(StatsSample, AdminReport), String>;

fn watch(mut source: StatsSource, admin: &AdminChoice, interval: Duration, sender: &Sender<Look>) {
    let mut due = Instant::now();
    loop {
        // An answer that came late does not bring the next one forward.
        due = (due + interval).max(Instant::now());
        thread::sleep(due - Instant::now());
        let sample = source.sample().map_err(|error| match error {
            Error::Connection { source, .. } => source.to_string(),
            other => other.to_string(),
        });
        let look = sample.map(|sample| {
            let told = AdminReport::read(admin, &sample);
            (sample, told)
        });
        if sender.send(look).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    target: &str,
    first: StatsSample,
    interval: Duration,
    looks: &Receiver<Look>,
) -> Result<(), Error> {
    let mut view =
        TopView::new(TopReport::new(target, None, &first, AdminReport::default()), interval, Looks::of_environment());
    let mut last = first;
    loop {
        for look in looks.try_iter() {
            match look {
                Ok((now, admin)) => {
                    view.update(TopReport::new(target, Some(&last), &now, admin));
                    last = now;
                }
                Err(reason) => view.silence = Some((reason, last.taken.elapsed())),
            }
        }
        if let Some((_, time)) = &mut view.silence {
            *time = last.taken.elapsed();
        }
        terminal.draw(|frame| view.draw(frame))?;
        if event::poll(NAP)?
            && let Ok(Event::Key(key)) = event::read()
            && key.kind == KeyEventKind::Press
            && view.handle(key)
        {
            return Ok(());
        }
    }
}
