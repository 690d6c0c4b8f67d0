package dut

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// TcpdumpDisk captures into a file on the disk of the run's folder. The device removes the file's name once tcpdump has
// opened the file, so the kernel deletes the file when the last process of the device ends. After tcpdump has ended,
// the device counts the frames in the file by size.
//
// The measured CPU time is tcpdump's. It does not contain the kernel's later work of writing the data to the disk.
//
// The files of all programs together may fill the disk until minDiskFree bytes are free. tcpdump does not notice that a
// write fails: it goes on to capture and count, and ends without an error. A file with fewer frames than tcpdump
// counted is therefore an error.
type TcpdumpDisk struct{ *capturePrograms }

var _ Capturing = TcpdumpDisk{}

const (
	minDiskFree    = 1 << 30          // bytes of the disk that stay free
	minFileRoom    = 64 << 20         // bytes of the disk that must be free for each file
	diskEndTimeout = 30 * time.Second // for the end of a program, most of it for counting the frames of its file
)

// NewTcpdumpDisk makes the device.
func NewTcpdumpDisk(capture Capture) TcpdumpDisk {
	return newTcpdumpDisk(capture, minDiskFree, minFileRoom)
}

func newTcpdumpDisk(capture Capture, keep, least int64) TcpdumpDisk {
	return TcpdumpDisk{newPrograms(captureProgram{
		name:         "tcpdump",
		checkSupport: rejectWork,
		argv: func(env Env, capture Capture, dir string) []string {
			file := diskFile(dir)
			sizes := []string{
				strconv.FormatInt(keep>>10, 10), strconv.FormatInt(least>>10, 10), strconv.Itoa(max(1, capture.Programs))}
			return slices.Concat([]string{"sh", "-c", captureToDisk, "sh", dir, file}, sizes, tcpdumpCommand(env, capture, file))
		},
		ready: "listening on",
		onReady: func(ctx context.Context, program daemon, dir string) error {
			return shell(ctx, program.host, `rm "$1"`, diskFile(dir))
		},
		drain:  drainTcpdump,
		counts: diskCounts,
		grace:  diskEndTimeout,
	}, capture)}
}

// diskFile returns the capture file of the program whose directory is dir. AppArmor lets tcpdump write files that end
// in .pcap.
func diskFile(dir string) string { return path.Join(agent.Disk, path.Base(dir)+".pcap") }

// captureToDisk runs tcpdump and then counts the frames of its file. Arguments: $1 the program's directory, $2 the
// file, $3 the KiB of the disk that stay free, $4 the KiB that must be free for each file, $5 the number of programs
// that share the disk; tcpdump's command line follows. The shell ignores the signals that end tcpdump. Both ignore
// SIGXFSZ, which the kernel sends when a file reaches its size limit.
const captureToDisk = `dir=$1 file=$2 keep=$3 least=$4 programs=$5
shift 5
disk=${file%/*}
case $(stat -f -c %T "$disk") in
tmpfs | ramfs)
	echo "the run's folder is in memory, not on a disk: choose another one with --out" >&2
	exit 1 ;;
esac
free=$(($(stat -f -c '%a * %S / 1024' "$disk")))
room=$(((free - keep) / programs))
if [ "$room" -lt "$least" ]; then
	echo "disk full: the one of the run's folder has $((free / 1024)) MiB free, of which $((keep / 1024)) MiB stay free: make room, or choose another folder with --out" >&2
	exit 1
fi
ulimit -f $((room * 2))
trap '' XFSZ
trap : TERM HUP INT
: >"$file"
exec 3<"$file"
"$@" &
pid=$!
echo $pid >"$dir/pid"
while kill -0 $pid 2>/dev/null; do
	wait $pid
	status=$?
done
rm -f "$file"
[ $status -eq 0 ] || exit $status
exec ` + agent.Self + " " + agent.SizesCommand + " <&3"

// Traits implements DUT.
func (TcpdumpDisk) Traits() Traits {
	return Traits{About: "tcpdump to a file on the disk", Families: bothFamilies, Needs: []Need{tcpdumpNeed}}
}

// diskCounts reads tcpdump's statistics, and after them the JSON line of the file's frame sizes.
func diskCounts(text string) (Captured, error) {
	end := strings.LastIndex(text, "\n{")
	counted, err := tcpdumpCounts(text[:end+1])
	if err != nil {
		return counted, err
	}
	var file struct {
		Frames int64
		Sizes  map[int]int64
	}
	if err := json.Unmarshal([]byte(text[end+1:]), &file); err != nil {
		return counted, fmt.Errorf("the sizes of the file's frames: %w", err)
	}
	if file.Frames != counted.Frames {
		return counted, fmt.Errorf(
			"disk full: tcpdump took %d frames and its file has %d: make room, or offer fewer frames", counted.Frames,
			file.Frames)
	}
	counted.Sizes = file.Sizes
	return counted, nil
}
