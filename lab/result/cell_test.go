package result_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestCellsAreEqualWhateverTheOrderTheyWereMadeIn: a cell (a set of dimensions with values) has one order of its
// dimensions, so equal cells are equal by ==. Missing dimensions read as empty or 0.
func TestCellsAreEqualWhateverTheOrderTheyWereMadeIn(t *testing.T) {
	a := result.NewCell(result.DUT, "opennds", result.Clients, 100, result.OfferedMbps, 0.5)
	b := result.NewCell(result.OfferedMbps, 0.5, result.DUT, "x", result.Direction, "", result.Clients, 100.0).With(
		result.DUT, "opennds")
	if a != b {
		t.Errorf("%v and %v differ", a, b)
	}
	if got := a.String(); got != "dut=opennds clients=100 offered_mbps=0.5" {
		t.Errorf("order and values: %s", got)
	}
	if a.Text(result.DUT) != "opennds" || a.Int(result.Clients) != 100 || a.Number(result.OfferedMbps) != 0.5 {
		t.Errorf("values of %v", a)
	}
	if a.HasDimension(result.Direction) || a.Text(result.Direction) != "" || a.Number(result.Direction) != 0 {
		t.Error("a dimension the cell lacks has a value")
	}
	if got := a.Without(result.Clients, result.OfferedMbps); got != a.Only(result.DUT) ||
		got != result.NewCell(result.DUT, "opennds") {
		t.Errorf("less two dimensions: %v", got)
	}
}

// TestCellsOfUnknownDimensionsFollowByName: dimensions that this package does not define follow the others, sorted by
// name.
func TestCellsOfUnknownDimensionsFollowByName(t *testing.T) {
	c := result.NewCell(result.Dimension("key_length"), 96, result.Dimension("cipher"), "#aes", result.DUT, "tcpdump")
	if got := c.String(); got != "dut=tcpdump cipher=#aes key_length=96" {
		t.Errorf("got %s", got)
	}
	if v, ok := c.Value("cipher"); !ok || v.IsNumber {
		t.Errorf("a text that looks like a number's mark: %+v", v)
	}
}

// TestCellsSurviveJSON: a cell written as JSON is read as the same cell.
func TestCellsSurviveJSON(t *testing.T) {
	for _, c := range []result.Cell{
		{},
		result.NewCell(result.DUT, `a"<&`, result.Clients, 10_000, result.OfferedMbps, 0.1, result.Direction, result.Up,
			result.Profile, result.Bulk),
		result.NewCell(result.DUT, "a\x1fb", result.Dimension("login_rate"), 0),
	} {
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back result.Cell
		if err := json.Unmarshal(data, &back); err != nil || back != c {
			t.Errorf("%s became %v: %v", data, back, err)
		}
	}
	data, _ := json.Marshal(result.NewCell(result.Clients, 3, result.DUT, "x"))
	if diff := cmp.Diff(`{"dut":"x","clients":3}`, string(data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var c result.Cell
	if err := json.Unmarshal([]byte(`{"dut":["x"]}`), &c); err == nil {
		t.Error("a list is no value of a dimension")
	}
}

// TestCompareCells: the first dimension given decides the order.
func TestCompareCells(t *testing.T) {
	a := result.NewCell(result.DUT, "b", result.Clients, 9)
	b := result.NewCell(result.DUT, "a", result.Clients, 10)
	if result.CompareCells(a, b, result.Clients, result.DUT) >= 0 ||
		result.CompareCells(a, b, result.DUT, result.Clients) <= 0 || result.CompareCells(a, a, result.DUT) != 0 {
		t.Error("cells are not compared by the dimensions given")
	}
}
