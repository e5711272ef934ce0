//! A page of metrics: families in their order.

use prometheus::proto::{self, Counter, Gauge, LabelPair, MetricFamily, MetricType};

use crate::statistics::{Metric, Row};

/// Names and values of labels.
type LabelPairs<'a> = &'a [(&'a str, &'a str)];

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
        self.add_rows_of(rows, &[(&[], source)]);
    }

    /// Adds the metrics of a table of several sources: each family has the samples of one source after those of the
    /// other, with the labels of their source.
    pub fn add_rows_of<S>(&mut self, rows: &[Row<S>], sources: &[(LabelPairs<'_>, &S)]) {
        for row in rows {
            let (Row::One { metric, .. } | Row::Each { metric, .. }) = row;
            let (name, help, kind, row_labels) = match metric {
                Metric::None => continue,
                Metric::Counter(name, help) => (*name, *help, MetricType::COUNTER, ""),
                Metric::Gauge(name, help) => (*name, *help, MetricType::GAUGE, ""),
                Metric::CounterBy(name, help, labels) => (*name, *help, MetricType::COUNTER, *labels),
                Metric::GaugeBy(name, help, labels) => (*name, *help, MetricType::GAUGE, *labels),
                Metric::And(labels) => ("", "", self.last().get_field_type(), *labels),
            };
            let of_source = |(labels, source): &(LabelPairs<'_>, &S)| -> Vec<proto::Metric> {
                let sample = |more: LabelPairs<'_>, value| metric_of(kind, &[*labels, more].concat(), value);
                match row {
                    Row::One { read, .. } => vec![sample(&pairs(row_labels), read(source).as_f64())],
                    Row::Each { read, .. } => {
                        let values = read(source).into_iter();
                        values.map(|(value, count)| sample(&[(row_labels, value)], count as f64)).collect()
                    }
                }
            };
            let metrics = sources.iter().flat_map(of_source);
            match metric {
                Metric::And(_) => self.last().mut_metric().extend(metrics),
                _ => self.add(name, help, kind, metrics.collect()),
            }
        }
    }

    fn last(&mut self) -> &mut MetricFamily {
        self.families.last_mut().expect("a row begins the family")
    }

    pub fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<proto::Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_string());
        family.set_help(help.to_string());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.families.push(family);
    }

    pub fn gauge(&mut self, name: &str, help: &str, labels: LabelPairs<'_>, value: f64) {
        self.add(name, help, MetricType::GAUGE, vec![metric_of(MetricType::GAUGE, labels, value)]);
    }
}

fn metric_of(kind: MetricType, pairs: LabelPairs<'_>, value: f64) -> proto::Metric {
    let mut metric = proto::Metric::from_label(labels(pairs));
    if kind == MetricType::GAUGE {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    } else {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    }
    metric
}

/// The labels of a row: `name=value,name=value`.
fn pairs(labels: &'static str) -> Vec<(&'static str, &'static str)> {
    labels.split(',').filter_map(|pair| pair.split_once('=')).collect()
}
