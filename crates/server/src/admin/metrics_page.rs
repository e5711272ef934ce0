//! A page of metrics: families in their order.

use prometheus::proto::{self, Counter, Gauge, LabelPair, MetricFamily, MetricType};

use crate::statistics::{Metric, Row};

/// Labels and a value.
pub type MetricSample<'a> = (&'a [(&'a str, &'a str)], f64);

pub fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
    let label = |(name, value): &(&str, &str)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_string());
        label.set_value((*value).to_string());
        label
    };
    pairs.iter().map(label).collect()
}

/// The families in their order.
#[derive(Default)]
pub struct MetricsPage {
    pub families: Vec<MetricFamily>,
}

impl MetricsPage {
    /// Adds the metrics of a table.
    pub fn add_rows<S>(&mut self, rows: &[Row<S>], source: &S) {
        for row in rows {
            match row {
                Row::One { metric: Metric::None, .. } => {}
                Row::One { metric: Metric::Counter(name, help), read, .. } => {
                    self.counter(name, help, &[(&[], read(source).as_f64())]);
                }
                Row::One { metric: Metric::Gauge(name, help), read, .. } => {
                    self.gauge(name, help, &[(&[], read(source).as_f64())]);
                }
                Row::One { metric: Metric::CounterBy(name, help, labels), read, .. } => {
                    self.counter(name, help, &[(&pairs(labels), read(source).as_f64())]);
                }
                Row::One { metric: Metric::GaugeBy(name, help, labels), read, .. } => {
                    self.gauge(name, help, &[(&pairs(labels), read(source).as_f64())]);
                }
                Row::One { metric: Metric::And(labels), read, .. } => {
                    self.add_to_last(&pairs(labels), read(source).as_f64());
                }
                Row::Each { metric, read, .. } => self.add_each(metric, &read(source)),
            }
        }
    }

    fn add_each(&mut self, metric: &Metric, values: &[(&str, u64)]) {
        let (Metric::CounterBy(name, help, label) | Metric::GaugeBy(name, help, label)) = metric else { return };
        let pairs: Vec<_> = values.iter().map(|(value, _)| [(*label, *value)]).collect();
        let samples: Vec<MetricSample<'_>> =
            pairs.iter().zip(values).map(|(pair, (_, count))| (pair.as_slice(), *count as f64)).collect();
        match metric {
            Metric::GaugeBy(..) => self.gauge(name, help, &samples),
            _ => self.counter(name, help, &samples),
        }
    }

    /// Adds one more sample to the family that was added last.
    fn add_to_last(&mut self, pairs: &[(&str, &str)], value: f64) {
        let family = self.families.last_mut().expect("a row begins the family");
        let metric = match family.get_field_type() {
            MetricType::GAUGE => gauge(pairs, value),
            _ => counter(pairs, value),
        };
        family.mut_metric().push(metric);
    }

    pub fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<proto::Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_string());
        family.set_help(help.to_string());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.families.push(family);
    }

    pub fn gauge(&mut self, name: &str, help: &str, samples: &[MetricSample<'_>]) {
        let metrics = samples.iter().map(|(pairs, value)| gauge(pairs, *value));
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    pub fn plain_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge(name, help, &[(&[], value)]);
    }

    pub fn plain_counter(&mut self, name: &str, help: &str, value: u64) {
        self.counter(name, help, &[(&[], value as f64)]);
    }

    pub fn counter(&mut self, name: &str, help: &str, samples: &[MetricSample<'_>]) {
        let metrics = samples.iter().map(|(pairs, value)| counter(pairs, *value));
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }
}

fn gauge(pairs: &[(&str, &str)], value: f64) -> proto::Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = proto::Metric::from_label(labels(pairs));
    metric.set_gauge(gauge);
    metric
}

fn counter(pairs: &[(&str, &str)], value: f64) -> proto::Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = proto::Metric::from_label(labels(pairs));
    metric.set_counter(counter);
    metric
}

/// The labels of a row: `name=value,name=value`.
fn pairs(labels: &'static str) -> Vec<(&'static str, &'static str)> {
    labels.split(',').filter_map(|pair| pair.split_once('=')).collect()
}
