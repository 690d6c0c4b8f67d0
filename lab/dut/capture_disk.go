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

// TcpdumpDisk captures into a file on the disk that the run's folder is on. The file has no name once tcpdump has
// opened it, so it is gone when the last of the device's processes is. After tcpdump's end its frames are counted by
// size.
//
// The processor time is tcpdump's: what the kernel does later to bring the data to the disk is nobody's.
//
// A file may take what is free on the disk when the capture begins but keepFree, shared by the programs. tcpdump itself
// does not notice that it can no longer write: it captures on, counts on and ends as always. A file with fewer frames
// than tcpdump counted is therefore an error.
type TcpdumpDisk struct{ *capturePrograms }

var _ Capturing = TcpdumpDisk{}

const (
	minDiskFree = 1 << 30          // bytes of the disk that stay free
	leastRoom   = 64 << 20         // bytes that each file must have room for
	diskGrace   = 30 * time.Second // of a program, of which most is for counting the frames of its file
)

// NewTcpdumpDisk makes the device.
func NewTcpdumpDisk(capture Capture) TcpdumpDisk {
	return newTcpdumpDisk(capture, minDiskFree, leastRoom)
}

func newTcpdumpDisk(capture Capture, keep, least int64) TcpdumpDisk {
	return TcpdumpDisk{newPrograms(captureProgram{
		name:    "tcpdump",
		refuses: refuseWork,
		argv: func(env Env, capture Capture, dir string) []string {
			file := diskFile(dir)
			sizes := []string{
				strconv.FormatInt(keep>>10, 10), strconv.FormatInt(least>>10, 10), strconv.Itoa(max(1, capture.Programs))}
			return slices.Concat([]string{"sh", "-c", captureToDisk, "sh", dir, file}, sizes, tcpdumpCommand(env, capture, file))
		},
		ready: "listening on",
		captures: func(ctx context.Context, d daemon, dir string) error {
			return shell(ctx, d.host, `rm "$1"`, diskFile(dir))
		},
		drain:  drainTcpdump,
		counts: diskCounts,
		grace:  diskGrace,
	}, capture)}
}

// diskFile is the file of the program that has a directory. AppArmor lets tcpdump write files of such a name.
func diskFile(dir string) string { return path.Join(agent.Disk, path.Base(dir)+".pcap") }

// captureToDisk runs tcpdump and then counts the frames of its file: $1 is the program's directory, $2 the file, $3 how
// many KiB of the disk stay free, $4 how many a file must have room for, $5 how many programs share it; tcpdump
// follows. It ignores what ends tcpdump, and SIGXFSZ, which would end it where the file may not grow.
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
	return Traits{About: "tcpdump to a file on the disk", Needs: []Need{tcpdumpNeed}}
}

// diskCounts reads what tcpdump counted, and after it the sizes in its file.
func diskCounts(text string) (Captured, error) {
	end := strings.LastIndex(text, "\n{")
	c, err := tcpdumpCounts(text[:end+1])
	if err != nil {
		return c, err
	}
	var file struct {
		Frames int64
		Sizes  map[int]int64
	}
	if err := json.Unmarshal([]byte(text[end+1:]), &file); err != nil {
		return c, fmt.Errorf("the sizes of the file's frames: %w", err)
	}
	if file.Frames != c.Frames {
		return c, fmt.Errorf(
			"disk full: tcpdump took %d frames and its file has %d: make room, or offer fewer frames", c.Frames, file.Frames)
	}
	c.Sizes = file.Sizes
	return c, nil
}
