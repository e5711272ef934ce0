use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::measures::TopReport;
use super::source::{StatsSample, StatsSource};
use super::view::TopView;
use crate::Error;

/// How long a key may wait while nothing else happens.
const NAP: Duration = Duration::from_millis(100);

/// Shows the server until the user quits. The terminal is given back however this ends, also by a panic.
pub fn run(source: StatsSource, first: StatsSample, interval: Duration) -> Result<(), Error> {
    let target = source.target().to_owned();
    let (sender, samples) = channel();
    // A thread of its own, so that a server that hangs does not hold up the keys. It ends with the process.
    thread::spawn(move || watch(source, interval, &sender));
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &target, first, interval, &samples);
    ratatui::try_restore()?;
    shown
}

fn watch(mut source: StatsSource, interval: Duration, sender: &Sender<Result<StatsSample, String>>) {
    let mut due = Instant::now();
    loop {
        // An answer that came late does not bring the next one forward.
        due = (due + interval).max(Instant::now());
        thread::sleep(due - Instant::now());
        let sample = source.sample().map_err(|error| match error {
            Error::Connection { source, .. } => source.to_string(),
            other => other.to_string(),
        });
        if sender.send(sample).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    target: &str,
    first: StatsSample,
    interval: Duration,
    samples: &Receiver<Result<StatsSample, String>>,
) -> Result<(), Error> {
    let mut view = TopView::new(TopReport::new(target, None, &first), interval);
    let mut last = first;
    loop {
        for answer in samples.try_iter() {
            match answer {
                Ok(now) => {
                    view.update(TopReport::new(target, Some(&last), &now));
                    last = now;
                }
                Err(reason) => view.silence = Some((reason, last.taken.elapsed())),
            }
        }
        if let Some((_, time)) = &mut view.silence {
            *time = last.taken.elapsed();
        }
        terminal.draw(|frame| view.draw(frame))?;
        if event::poll(NAP)? && event::read().is_ok_and(quits) {
            return Ok(());
        }
    }
}

fn quits(event: Event) -> bool {
    match event {
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => match code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
            KeyCode::Char('c' | 'C') => modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        },
        _ => false,
    }
}
