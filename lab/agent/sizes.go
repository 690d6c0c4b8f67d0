package agent

import (
	"encoding/json"
	"io"

	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
)

// countSizes counts the frames of a captured file (pcap), by their sizes, and prints the counts as one line of JSON.
func countSizes(r io.Reader, w io.Writer) error {
	c, err := capture.CountSizes(r)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(c)
}
