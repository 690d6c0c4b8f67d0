package guesses

import "time"

// A room has as many free failures as a name (names.go): made-up MAC addresses could otherwise try last names for one
// room at the rate of all codes. Rooms are named by their numbers, as package rooms folds them.

// WaitRoom is how long the client must wait before it may say whose a room is; 0: it may now. all means that it waits
// for other devices' wrong codes and rooms, whatever the room.
func (t *Try) WaitRoom(room string) (wait time.Duration, all bool) {
	if wait, all = t.WaitCode(); all {
		return wait, all
	}
	return max(wait, t.guard.rooms.wait(room, t.attempter.MAC)), false
}

// WrongRoom counts a wrong name for a room, or a room that nobody has.
func (t *Try) WrongRoom(room string) {
	t.WrongCode()
	t.guard.sharing.count(t.guard.rooms.countWrong(room, t.attempter.MAC), 1)
	if t.room != room {
		t.room, t.ofRoom = room, 0
	}
	t.ofRoom++
}

// RightRoom clears a room's failures after a login, and of the client's those for this room that came last: who has a
// room cannot clear guesses at other ones with it.
func (t *Try) RightRoom(room string) {
	t.guard.sharing.clear(t.guard.rooms.clearFailures(room, t.attempter.MAC))
	if t.room == room {
		t.forgive(t.ofRoom)
		t.room, t.ofRoom = "", 0
	}
}
