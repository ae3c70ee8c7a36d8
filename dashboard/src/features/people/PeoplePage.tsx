/** People and programs of the service: add one, change a role, deactivate. */
import { type FormEvent, useState } from "react";
import {
  addUser,
  changeUser,
  type InvitationView,
  inviteUser,
  listUsers,
  type ServiceRole,
  type UserView,
} from "@/api/generated";
import { usePolled } from "@/api/polling";
import { useRights } from "@/api/rights";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { Checkbox, NativeSelect, TextInput } from "@/components/mantine";
import { SkeletonRows } from "@/components/SkeletonRows";
import { usePageTitle } from "@/components/usePageTitle";
import { moment } from "@/lib/format";
import classes from "./PeoplePages.module.css";
import { ShownOnce } from "./ShownOnce";
import { useChange } from "./useChange";

const ROLES = [
  { value: "", label: "no role" },
  { value: "operator", label: "operator" },
  { value: "admin", label: "admin" },
];

export function PeoplePage() {
  usePageTitle("People");
  const changes = useRights().has("user.write");
  const [invitation, setInvitation] = useState<InvitationView | null>(null);
  const { data, error, refetch } = usePolled({
    key: ["people", "users"],
    fetch: (signal) => listUsers({ signal, throwOnError: true }),
    seconds: 10,
  });
  return (
    <>
      <h1 className={classes.title}>People</h1>
      <p className={classes.summary}>
        An operator controls all jobs and nodes; an admin of the service also adds people and projects.
      </p>
      {data === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {data === undefined && error === null ? <SkeletonRows label="The people are loading" /> : null}
      {data === undefined ? null : (
        <div className={classes.panel}>
          <table className={classes.cards}>
            <caption className={classes.caption}>People and programs</caption>
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Full name</th>
                <th scope="col">Kind</th>
                <th scope="col">State</th>
                <th scope="col">Role in the service</th>
                {changes ? (
                  <th scope="col">
                    <span className={classes.caption}>Access</span>
                  </th>
                ) : null}
              </tr>
            </thead>
            <tbody>
              {data.items.map((user) => (
                <Row key={user.name} user={user} changes={changes} onInvited={setInvitation} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {invitation === null ? null : (
        <ShownOnce secret={invitation.code} what="code">
          <strong>This invitation code is shown only now.</strong> {invitation.name} signs in with it by invitation,
          once, until {moment(invitation.expires_at)}.
        </ShownOnce>
      )}
      {changes ? <NewUser onInvited={setInvitation} /> : null}
    </>
  );
}

type OnInvited = (invitation: InvitationView) => void;

async function invite(name: string): Promise<InvitationView> {
  return (await inviteUser({ path: { name }, throwOnError: true })).data;
}

function Row({ user, changes, onInvited }: { user: UserView; changes: boolean; onInvited: OnInvited }) {
  return (
    <tr>
      <th scope="row">{user.name}</th>
      <td data-name="Full name">{user.title || "–"}</td>
      <td data-name="Kind">{user.service ? "program" : "person"}</td>
      <td data-name="State">{user.state}</td>
      {changes ? <Access user={user} onInvited={onInvited} /> : <td data-name="Role">{user.role ?? "no role"}</td>}
    </tr>
  );
}

function Access({ user, onInvited }: { user: UserView; onInvited: OnInvited }) {
  const change = useChange((body: { role?: ServiceRole | null; active?: boolean }) =>
    changeUser({ path: { name: user.name }, body, throwOnError: true }),
  );
  const invites = useChange(() => invite(user.name), onInvited);
  const error = change.error ?? invites.error;
  return (
    <>
      <td>
        <NativeSelect
          size="xs"
          className={classes.role}
          aria-label={`Role of ${user.name} in the service`}
          data={ROLES}
          value={user.role ?? ""}
          disabled={change.isPending}
          onChange={(event) => change.mutate({ role: (event.currentTarget.value || null) as ServiceRole | null })}
        />
        {error === null ? null : <Failed error={error} />}
      </td>
      <td>
        {user.service || user.state === "off" ? null : (
          <Button
            size="xs"
            className={classes.first}
            title="A code with which the person sets a new password"
            loading={invites.isPending}
            onClick={() => invites.mutate(undefined)}
          >
            Invite {user.name}
          </Button>
        )}
        <Button size="xs" loading={change.isPending} onClick={() => change.mutate({ active: user.state === "off" })}>
          {user.state === "off" ? `Activate ${user.name}` : `Deactivate ${user.name}`}
        </Button>
      </td>
    </>
  );
}

function NewUser({ onInvited }: { onInvited: OnInvited }) {
  const [name, setName] = useState("");
  const [title, setTitle] = useState("");
  const [service, setService] = useState(false);
  const add = useChange(
    async () => {
      await addUser({ body: { name, title, service }, throwOnError: true });
      if (!service) onInvited(await invite(name));
    },
    () => {
      setName("");
      setTitle("");
      setService(false);
    },
  );
  function submit(event: FormEvent) {
    event.preventDefault();
    add.mutate(undefined);
  }
  return (
    <section className={classes.panel}>
      <div className={classes.head}>
        <h2>Add</h2>
      </div>
      <form className={classes.form} onSubmit={submit}>
        <TextInput label="Name" value={name} required onChange={(event) => setName(event.currentTarget.value)} />
        <TextInput label="Full name" value={title} onChange={(event) => setTitle(event.currentTarget.value)} />
        <Checkbox
          label="A program, with tokens only"
          checked={service}
          onChange={(event) => setService(event.currentTarget.checked)}
        />
        <Button variant="filled" type="submit" loading={add.isPending} disabled={name === ""}>
          Add
        </Button>
      </form>
      {add.error === null ? null : <Failed error={add.error} />}
    </section>
  );
}
