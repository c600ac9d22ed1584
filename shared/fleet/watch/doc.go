// Package watch answers a watch of several clusters with one stream of events.
//
// A follower reads the events of one member. The watcher alone writes to the client, and records its progress.
//
// Invariants, each with the tests that fail if it is broken:
//
//  1. The version of a watch maps each member to the last resourceVersion that was fully delivered. A member is absent
//     until its initial list is delivered, unless the client resumes from a version of it. TestFleetWatchCutInAList
//  2. A member is complete when its list and the version of that list were delivered. A member that fails before does
//     not delay the others. TestFleetWatchBrokenList
//  3. The bookmark after the initial events is sent once, after the lists of all members that responded at the start.
//     TestFleetWatchInitialEventsEnd
//  4. In a watch of several members, no event has a resumable version while a list is being delivered. A client that
//     resumes from one gets 410, because it would keep deleted objects. TestFleetWatchCutInAList
//  5. A client that resumes from any other version misses no event.
//     TestFleetAnswersAsItsClusters, TestFleetWatchCutInADifference
//  6. An event that cannot be delivered is in no version. The member is watched again from the version before it. An
//     event over merge.MaxObject ends the watch with 410. TestFleetWatchBadEvent, TestFleetWatchTooLarge
//  7. A resume skips no event of a member whose history is gone: it gets the difference of two lists, or 410.
//     TestDifference, TestDifferenceOfDisorder, TestFleetWatchOfOtherLists, TestDifferenceCutShort,
//     TestFleetOfOneLosesHistory
//  8. The version of a member only grows. A member at an earlier version ends the watch with 410. An event of an
//     earlier version is not delivered. TestFleetWatchWentBack, TestFleetWatchOfOtherLists,
//     TestFleetWatchEarlierEvent
//  9. A single member's events have its own versions, which resume as at the member. When a second member joins,
//     versions become composite and still grow. TestFleetOfOneUsesOwnVersions, TestFleetOfOneGrows
//  10. A version of one member does not resume a watch of several, nor the reverse.
//     TestFleetOfOneRefusesOtherVersions, TestFleetOfOnePassesContinueTokens
//  11. No version of a member looks composite to the client. Otherwise a member could decide where watches of others
//     resume. TestObjectVersionIsNoComposite
//  12. A watch ends when it may no longer follow a member whose objects the client has seen.
//     TestFleetWatchOtherIdentity
package watch
