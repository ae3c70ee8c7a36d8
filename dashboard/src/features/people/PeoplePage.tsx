/** People and programs of the service: add one, change a role, deactivate. */
import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { addUser, changeUser, listUsers, type ServiceRole, type UserView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { useRights } from "@/api/rights";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { usePageTitle } from "@/components/usePageTitle";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

const ROLES = [
  { value: "", label: "no role" },
  { value: "operator", label: "operator" },
  { value: "admin", label: "admin" },
];

export function PeoplePage() {
  usePageTitle("People");
  const changes = useRights().has("user.write");
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
          <table className={classes.table}>
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
                <Row key={user.name} user={user} changes={changes} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {changes ? <NewUser /> : null}
    </>
  );
}

function Row({ user, changes }: { user: UserView; changes: boolean }) {
  return (
    <tr>
      <th scope="row">{user.name}</th>
      <td>{user.title || "–"}</td>
      <td>{user.service ? "program" : "person"}</td>
      <td>{user.state}</td>
      {changes ? <Access user={user} /> : <td>{user.role ?? "no role"}</td>}
    </tr>
  );
}

function Access({ user }: { user: UserView }) {
  const change = useChange((body: { role?: ServiceRole | null; active?: boolean }) =>
    changeUser({ path: { name: user.name }, body, throwOnError: true }),
  );
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
        {change.error === null ? null : <Failed error={change.error} />}
      </td>
      <td>
        <Button
          size="compact-xs"
          variant="default"
          loading={change.isPending}
          onClick={() => change.mutate({ active: user.state === "off" })}
        >
          {user.state === "off" ? `Activate ${user.name}` : `Deactivate ${user.name}`}
        </Button>
      </td>
    </>
  );
}

function NewUser() {
  const [name, setName] = useState("");
  const [title, setTitle] = useState("");
  const [service, setService] = useState(false);
  const add = useChange(
    () => addUser({ body: { name, title, service }, throwOnError: true }),
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
        <Button type="submit" loading={add.isPending} disabled={name === ""}>
          Add
        </Button>
      </form>
      {add.error === null ? null : <Failed error={add.error} />}
    </section>
  );
}
