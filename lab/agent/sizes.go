package agent

import (
	"encoding/json"
	"io"

	"github.com/gateweigh/gateweigh/lab/traffic/frames/capture"
)

// countSizes counts the frames of a capture and prints them as JSON on one line.
func countSizes(r io.Reader, w io.Writer) error {
	c, err := capture.CountSizes(r)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(c)
}
