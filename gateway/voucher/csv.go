package voucher

import (
	"encoding/csv"
	"fmt"
	"io"
	"time"
)

// WriteCSV writes vouchers as CSV. Times are RFC 3339, durations are seconds.
func WriteCSV(out io.Writer, all []Voucher) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"voucher", "code", "batch", "state", "created", "first_use", "end", "for_seconds",
		"online_seconds", "bytes", "devices", "up_bps", "down_bps", "used_seconds", "used_bytes",
		"note", "connections"}) // w.Error has its error
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	for _, v := range all {
		t := v.Terms
		_ = w.Write([]string{v.Name, v.Code.String(), v.Batch, string(v.State), moment(v.Created), moment(v.FirstUse),
			moment(v.End), fmt.Sprint(t.ForSeconds), fmt.Sprint(t.OnlineSeconds), fmt.Sprint(t.Bytes), fmt.Sprint(t.Devices),
			fmt.Sprint(t.UpBps), fmt.Sprint(t.DownBps), fmt.Sprint(v.UsedSeconds), fmt.Sprint(v.UsedBytes), t.Note,
			fmt.Sprint(t.Connections)})
	}
	w.Flush()
	return w.Error()
}
