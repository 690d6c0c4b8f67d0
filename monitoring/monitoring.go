// Package monitoring makes the dashboards for Grafana in this folder: gatewayd.json of gateways, and gateweigh.json of
// runs and campaigns that gateweigh serve shows. The alert rules beside them are written by hand.
package monitoring

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// query is an expression of PromQL. In it %s is the selector of the dashboard's variables.
type query struct {
	expr   string
	legend string // of its series, with labels in double braces
}

// panel is a part of a dashboard.
type panel struct {
	title string
	what  string // a sentence for the reader
	unit  string // by Grafana's name
	now   bool   // one value instead of a course
	all   []query
}

// row is panels below a heading.
type row struct {
	title  string
	panels []panel
}

// Sizes in Grafana's grid of 24 columns.
const (
	statHeight, statWidth     = 4, 6
	courseHeight, courseWidth = 8, 12
)

// source is the reader's choice of a Prometheus.
var source = common.DataSourceRef{Type: new("prometheus"), Uid: new("${source}")}

// page makes a dashboard. metric is one that each target has, from which the reader chooses the targets.
func page(title, uid, metric string, rows []row) ([]byte, error) {
	labels := fmt.Sprintf("label_values(%s, instance)", metric)
	//lint:ignore SA1019 the form that replaces it needs Grafana 12
	b := dashboard.NewDashboardBuilder(title).Uid(uid).Tags([]string{"gateweigh"}).
		Readonly().Refresh("30s").Time("now-6h", "now").Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("source").Label("Prometheus").Type("prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder("instance").Label("Instance").Datasource(source).
			Query(dashboard.StringOrMap{String: &labels}).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortAlphabeticalAsc).Multi(true).IncludeAll(true))
	for _, r := range rows {
		b.WithRow(dashboard.NewRowBuilder(r.title))
		for _, p := range r.panels {
			if p.now {
				b.WithPanel(p.value())
			} else {
				b.WithPanel(p.course())
			}
		}
	}
	made, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("the dashboard %s: %w", title, err)
	}
	text, err := json.MarshalIndent(made, "", "  ")
	return append(text, '\n'), err
}

// value shows a panel's query as of now.
func (p panel) value() *stat.PanelBuilder {
	b := stat.NewPanelBuilder().Title(p.title).Description(p.what).Unit(p.unit).Datasource(source).
		Height(statHeight).Span(statWidth).GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeNone).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	for i, q := range p.all {
		b.WithTarget(q.target(i).Instant()) // what has ended is not shown as now
	}
	return b
}

// course shows a panel's queries over time.
func (p panel) course() *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().Title(p.title).Description(p.what).Unit(p.unit).Datasource(source).
		Height(courseHeight).Span(courseWidth).Min(0).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).ShowLegend(true).
			Placement(common.LegendPlacementBottom))
	for i, q := range p.all {
		b.WithTarget(q.target(i))
	}
	return b
}

// target is the i-th query of a panel.
func (q query) target(i int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source).RefId(string(rune('A' + i))).LegendFormat(q.legend).
		Expr(q.expr)
}

// of returns a metric of the targets that the reader chose.
func of(metric string, labels ...string) string {
	selector := `instance=~"$instance"`
	for _, l := range labels {
		selector += "," + l
	}
	return metric + "{" + selector + "}"
}

// each returns the changes a second of a counter, a series for each value of a label.
func each(label, metric string) query {
	return query{fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", label, of(metric)), "{{" + label + "}}"}
}

// sum returns the sum of a gauge over targets and networks, a series for each value of a label.
func sum(label, metric string) query {
	return query{fmt.Sprintf("sum by (%s) (%s)", label, of(metric)), "{{" + label + "}}"}
}
