//! A page of metrics: families in their order.

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

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
    pub fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_string());
        family.set_help(help.to_string());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.families.push(family);
    }

    pub fn gauge(&mut self, name: &str, help: &str, samples: &[MetricSample<'_>]) {
        let metrics = samples.iter().map(|(pairs, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(*value);
            let mut metric = Metric::from_label(labels(pairs));
            metric.set_gauge(gauge);
            metric
        });
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    pub fn plain_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge(name, help, &[(&[], value)]);
    }

    pub fn counter(&mut self, name: &str, help: &str, samples: &[MetricSample<'_>]) {
        let metrics = samples.iter().map(|(pairs, value)| {
            let mut counter = Counter::default();
            counter.set_value(*value);
            let mut metric = Metric::from_label(labels(pairs));
            metric.set_counter(counter);
            metric
        });
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }

    pub fn plain_counter(&mut self, name: &str, help: &str, value: u64) {
        self.counter(name, help, &[(&[], value as f64)]);
    }

    /// A counter with one label.
    pub fn by(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        let pairs: Vec<_> = values.iter().map(|(value, _)| [(label, *value)]).collect();
        let samples: Vec<MetricSample<'_>> =
            pairs.iter().zip(values).map(|(pair, (_, count))| (pair.as_slice(), *count as f64)).collect();
        self.counter(name, help, &samples);
    }
}
